package references

import "fmt"

// maxExamples is how many problems Findings spell out.
const maxExamples = 100

// Findings are the problems that a checker has found.
type Findings struct {
	Problems uint64
	Examples []string // the first problems
}

// Sound says that there is no problem.
func (f *Findings) Sound() bool { return f.Problems == 0 }

// Problem adds a problem.
func (f *Findings) Problem(format string, args ...any) {
	if f.Problems++; f.Problems <= maxExamples {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}
