package viewapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestParams: a parameter takes what its bounds say, and the first that is wrong is named.
func TestParams(t *testing.T) {
	number := func(p *Params) any { return p.Number("n", 7, 1, 1000) }
	list := func(p *Params) any { return p.List("l", 2) }
	flag := func(p *Params) any { return p.Flag("f") }
	for _, tc := range []struct {
		query string
		read  func(p *Params) any
		want  any    // if there is no error
		wrong string // what the error says, "" if there is none
	}{
		{"", number, 7, ""},
		{"n=", number, 7, ""},
		{"n=1", number, 1, ""},
		{"n=1000", number, 1000, ""},
		{"n=0", number, nil, `n: "0" is no number from 1 to 1000`},
		{"n=1001", number, nil, `n: "1001" is no number from 1 to 1000`},
		{"n=x", number, nil, `n: "x"`},
		{"n=1&n=2", number, nil, "n: it is given 2 times"},
		{"", list, []string(nil), ""},
		{"l=a&l=+&l=&l=b", list, []string{"a", "b"}, ""},
		{"l=a&l=b&l=c", list, nil, "l: 3 values are more than 2"},
		{"", flag, false, ""},
		{"f=true", flag, true, ""},
		{"f=false", flag, false, ""},
		{"f=1", flag, nil, `f: "1" is neither true nor false`},
		{"r=x", func(p *Params) any { return p.Required("r") }, "x", ""},
		{"", func(p *Params) any { return p.Required("r") }, nil, "r: it is missing"},
		{"r=", func(p *Params) any { return p.Required("r") }, nil, "r: it is missing"},
		{"r=x&r=y", func(p *Params) any { return p.Required("r") }, nil, "r: it is given 2 times"},
		{"n=x&f=1", func(p *Params) any { number(p); return flag(p) }, nil, `n: "x"`},
		{"n=%zz", number, nil, "query string: "},
		{"wait=10000", func(p *Params) any { p.At(); return nil }, nil, ""},
		{"wait=10001", func(p *Params) any { p.At(); return nil }, nil, "wait: "},
		{"at=x", func(p *Params) any { p.At(); return nil }, nil, "at: "},
	} {
		p := NewParams(tc.query)
		got := tc.read(p)
		err := p.Err()
		switch {
		case tc.wrong == "" && (err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want)):
			t.Errorf("%s: %v, %v, want %v", tc.query, got, err, tc.want)
		case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
			t.Errorf("%s: error %v, want %s", tc.query, err, tc.wrong)
		}
	}
	if DefaultLimit != 100 || MaxLimit != 1000 {
		t.Errorf("limits of pages are %d and %d, documented as 100 and 1,000", DefaultLimit, MaxLimit)
	}
	if got := (&Params{values: url.Values{}}).Values("v", []string{" a ", "", "b"}, 2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("values %q", got)
	}
}
