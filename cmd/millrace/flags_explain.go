package main

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// What package flag says of a mistake; it has no types for it.
var (
	unknownFlag = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	badValue    = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-([^ :]+): (.*)$`)
	noValue     = regexp.MustCompile(`^flag needs an argument: -(.*)$`)
)

// explainFlag says what is wrong with the arguments that fs failed to parse, and what would be
// right.
func explainFlag(fs *flag.FlagSet, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	text := err.Error()
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("millrace %s has no flag --%s%s; see millrace %s --help",
			fs.Name(), m[1], didYouMean("--"+m[1], namesOf(fs, func(s string) string { return "--" + s })), fs.Name())
	}
	if m := badValue.FindStringSubmatch(text); m != nil {
		wanted := whatIsWanted(fs, m[2], m[3])
		if strings.HasPrefix(wanted, m[1]) { // our own types name the value themselves
			return fmt.Errorf("--%s: %s", m[2], wanted)
		}
		return fmt.Errorf("--%s %s: %s", m[2], m[1], wanted)
	}
	if m := noValue.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("--%s needs a value: %s", m[1], whatIsWanted(fs, m[1], "see millrace "+fs.Name()+" --help"))
	}
	return errors.New(text)
}

// whatIsWanted returns an example of a right value where package flag says only that it could not
// parse. Otherwise it returns said.
func whatIsWanted(fs *flag.FlagSet, name, said string) string {
	g, ok := fs.Lookup(name).Value.(flag.Getter)
	if !ok {
		return said
	}
	switch g.Get().(type) {
	case time.Duration:
		return "give a duration with its unit, such as 36h, 90s or 250ms"
	case int, int64, uint, uint64:
		return "give a whole number, such as 100"
	case bool:
		return "give true or false, or the flag alone for true"
	}
	return said
}

// namesOf returns the names of the flags of fs, each as spell writes it.
func namesOf(fs *flag.FlagSet, spell func(string) string) []string {
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, spell(f.Name)) })
	return names
}

// didYouMean returns " (did you mean …?)" with the name that is most like what was given, or
// nothing if none is alike enough.
func didYouMean(given string, names []string) string {
	best, least := "", 1+len(strings.TrimPrefix(given, envPrefix))/3
	for _, name := range names {
		if d := editDistance(strings.ToLower(given), strings.ToLower(name), least); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// maxSpelled bounds what editDistance looks at: no flag is longer.
const maxSpelled = 64

// editDistance counts the letters to insert, delete, replace, or exchange with their neighbours
// that lead from a to b. It returns limit where there are at least as many.
func editDistance(a, b string, limit int) int {
	if len(a) > maxSpelled || len(b) > maxSpelled {
		return limit
	}
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return min(row[len(b)], limit)
}
