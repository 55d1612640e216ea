package main

import (
	"strings"
	"testing"
)

func TestDidYouMean(t *testing.T) {
	names := []string{"--relay", "--relay-cursor", "--retention", "--retention-bytes", "--listen", "--memory"}
	for given, want := range map[string]string{
		"--relai":                            "--relay",
		"--rleay":                            "--relay",
		"--Relay":                            "--relay",
		"--retenion":                         "--retention",
		"--memroy":                           "--memory",
		"--lisen":                            "--listen",
		"--relaycursor":                      "--relay-cursor",
		"--nothing":                          "",
		"--x":                                "",
		"--" + strings.Repeat("relay", 1000): "",
	} {
		if want != "" {
			want = " (did you mean " + want + "?)"
		}
		if got := didYouMean(given, names); got != want {
			t.Errorf("didYouMean(%.40q) = %q, want %q", given, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"same", "same", 0}, {"abcdef", "ghijkl", 6},
	} {
		if got := editDistance(tc.a, tc.b, 100); got != tc.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
