// report reads what `go test -json` writes, of one run or of several, one after another. It prints
// the results of packages and the output of tests that fail, as they come. With -summary it prints
// instead one line for each reason why tests did not run in any of the runs.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of build output
}

// groups name the reasons for which many tests do not run; any other reason is its own group.
var groups = []struct {
	words *regexp.Regexp
	name  string
}{
	{regexp.MustCompile(`corpus|captured frames|real data|interop fixtures`), "../shared/corpus is absent"},
	{regexp.MustCompile(`MILLRACE_TEST_LONG`), "MILLRACE_TEST_LONG is not set"},
}

var place = regexp.MustCompile(`^\s*\S+\.go:\d+: (SKIPPED: )?`)

func main() {
	summary := flag.Bool("summary", false, "print which tests did not run, and why")
	flag.Parse()
	output := map[string][]string{} // of each test that has not ended, and of each package
	reasons := map[string]string{}  // of tests that were skipped
	ran := map[string]bool{}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Action == "" {
			if !*summary {
				fmt.Println(in.Text())
			}
			continue
		}
		test := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			if e.Test == "" && !*summary && e.Output != "PASS\n" {
				fmt.Print(e.Output)
			} else {
				output[test] = append(output[test], e.Output)
			}
			continue
		case "pass":
			ran[test] = true
		case "skip":
			reasons[test] = reason(output[test])
		case "fail":
			ran[test] = true
			if !*summary {
				fmt.Print(strings.Join(output[test], ""))
			}
		}
		if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
			delete(output, test)
		}
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	if *summary {
		printSkipped(reasons, ran)
	}
}

// reason returns the last line that a skipped test has written.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		if place.MatchString(line) {
			return strings.TrimSpace(place.ReplaceAllString(line, ""))
		}
	}
	return "no reason given"
}

func printSkipped(reasons map[string]string, ran map[string]bool) {
	tests := map[string][]string{}
	for test, why := range reasons {
		_, name, _ := strings.Cut(test, " ")
		if ran[test] || name == "" { // a package without tests is skipped, too
			continue
		}
		for _, g := range groups {
			if g.words.MatchString(why) {
				why = g.name
			}
		}
		tests[why] = append(tests[why], name)
	}
	for _, why := range slices.Sorted(maps.Keys(tests)) {
		slices.Sort(tests[why])
		fmt.Printf("NOT RUN: %s: %d tests: %s\n", why, len(tests[why]), strings.Join(tests[why], " "))
	}
}
