package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// envPrefix begins the name of every environment variable that stands for a flag.
const envPrefix = "MILLRACE_"

// envTestPrefix begins those that only tests read; they are no mistake on the daemon's side.
const envTestPrefix = "MILLRACE_TEST_"

// envName returns the twin of a flag: data-dir is MILLRACE_DATA_DIR.
func envName(flagName string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// parseFlags sets fs from the arguments and, where they give no flag, from the environment. A
// variable that begins with MILLRACE_ and names no flag of fs is an error, as is an argument that
// is no flag. Flags and other arguments may come in any order; what follows -- is no flag.
func parseFlags(fs *flag.FlagSet, args, environ []string) error {
	fs.SetOutput(io.Discard)
	var others []string
	for {
		if err := fs.Parse(args); err != nil {
			return usageError{explainFlag(fs, err)}
		}
		rest := fs.Args()
		if n := len(args) - len(rest); len(rest) == 0 || n > 0 && args[n-1] == "--" {
			others = append(others, rest...)
			break
		}
		others, args = append(others, rest[0]), rest[1:]
	}
	if err := setFromEnviron(fs, environ); err != nil {
		return usageError{err}
	}
	if err := checkFlagValues(fs); err != nil {
		return usageError{err}
	}
	return fs.Parse(append([]string{"--"}, others...)) // sets what fs.Args returns, and no flag
}

// setFromEnviron sets the flags that no argument has set.
func setFromEnviron(fs *flag.FlagSet, environ []string) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, envTestPrefix) || kubernetesEnv.MatchString(name) {
			continue
		}
		flagName := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "-"))
		if fs.Lookup(flagName) == nil {
			return fmt.Errorf("environment variable %s names no flag of millrace %s%s; unset it or see millrace %s --help",
				name, fs.Name(), didYouMean(name, namesOf(fs, envName)), fs.Name())
		}
		if given[flagName] {
			continue
		}
		if err := fs.Set(flagName, value); err != nil {
			return fmt.Errorf("environment variable %s=%q: %s", name, value, whatIsWanted(fs, flagName, err.Error()))
		}
	}
	return nil
}

// checkFlagValues finds a flag that has another one as its value, for want of a value of its own.
func checkFlagValues(fs *flag.FlagSet) (err error) {
	fs.Visit(func(f *flag.Flag) {
		value := f.Value.String()
		name, _, _ := strings.Cut(strings.TrimLeft(value, "-"), "=")
		if strings.HasPrefix(value, "-") && fs.Lookup(name) != nil {
			err = fmt.Errorf("--%s has no value: %s is another flag", f.Name, value)
		}
	})
	return err
}

// kubernetesEnv matches variables that Kubernetes sets in pods beside a service whose name begins
// with millrace.
var kubernetesEnv = regexp.MustCompile(`_SERVICE_(HOST|PORT)|_PORT(_[0-9]|$)`)

// usageError is a mistake in how millrace was called: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// byteSize is a flag value in bytes: 256MiB, 2GiB, 500MB, 1048576.
type byteSize int64

// byteUnits begin with the binary ones.
var byteUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

func parseByteSize(s string) (byteSize, error) {
	number, unit := s, int64(1)
	for _, u := range byteUnits {
		if head, ok := strings.CutSuffix(s, u.suffix); ok {
			number, unit = strings.TrimSpace(head), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v >= 0 && v*float64(unit) <= math.MaxInt64/2) { // so that NaN is refused too
		return 0, fmt.Errorf("%q is not a size such as 256MiB, 2GB or 1048576", s)
	}
	return byteSize(v * float64(unit)), nil
}

// String writes the size in the largest binary unit that divides it.
func (b byteSize) String() string {
	for _, u := range slices.Backward(byteUnits[:4]) {
		if b != 0 && int64(b)%u.bytes == 0 {
			return strconv.FormatInt(int64(b)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Set implements flag.Value.
func (b *byteSize) Set(s string) error {
	v, err := parseByteSize(s)
	if err == nil {
		*b = v
	}
	return err
}

// list is a flag that may be repeated and whose values may be separated by commas or spaces.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(s string) error {
	for _, v := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !slices.Contains(*l, v) {
			*l = append(*l, v)
		}
	}
	return nil
}

// choice is a flag that takes one of a few words.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }

// Set implements flag.Value.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(c.allowed, ", "))
	}
	c.value = s
	return nil
}
