package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// outcome is what the tests of a package reported.
type outcome struct {
	failed   bool
	by       string        // the first test that failed, or the package
	timedOut bool          // it was ended for taking too long
	tests    time.Duration // until then, without the build
	all      time.Duration
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, FailedBuild string
}

// test runs one test, or all of a package, up to the first that fails. It returns an error where
// the tests cannot be built or run.
func test(overlay string, limit time.Duration, pkg, name string) (outcome, error) {
	args := []string{"test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout", limit.String()}
	if name != "" {
		args = append(args, "-run", "^"+name+"$")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	// By the environment, the programs that tests build have the edit too.
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	begin := time.Now()
	started := begin
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	var o outcome
	var built bool
	var build strings.Builder
	in := bufio.NewScanner(out)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			continue
		}
		switch e.Action {
		case "start":
			started = time.Now()
		case "build-output":
			build.WriteString(e.Output)
		case "run", "pass":
			built = true
		case "output":
			o.timedOut = o.timedOut || strings.HasPrefix(e.Output, "panic: test timed out after")
		case "fail":
			built = built || e.FailedBuild == ""
			if !o.failed {
				o.failed, o.by, o.tests = true, e.Package, time.Since(started)
			}
			if test, _, _ := strings.Cut(e.Test, "/"); test != "" && o.by == e.Package {
				o.by = test + " of " + e.Package
			}
		}
	}
	o.all = time.Since(begin)
	switch err := errors.Join(in.Err(), cmd.Wait()); {
	case err != nil && !errors.As(err, new(*exec.ExitError)):
		return o, err
	case !built && err != nil:
		return o, fmt.Errorf("cannot be tested:\n%s", build.String())
	}
	return o, nil
}

func (o outcome) print(what string, m mutant) {
	by := cmp.Or(o.by, m.test+" of "+m.pkg)
	if o.timedOut {
		by += ", which ran out of time,"
	}
	fmt.Printf("%-9s %-44s by %s in %.1fs, with the build %.1fs\n", what, m.name, by, o.tests.Seconds(), o.all.Seconds())
}
