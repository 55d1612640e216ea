package main

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// described is a metric as the code has it.
type described struct {
	name, help string
	labels     string // separated by commas, without spaces
	kind       string // "" where none has been made yet
}

var descText = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*?)"(?:, unit: ".*")?, constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)

// metricsOf returns the metrics of ours that a running daemon has registered.
func metricsOf(t *testing.T, d *testDaemon) map[string]described {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() { // ends when all are described
		defer close(descs)
		d.registry.Describe(descs)
	}()
	all := make(map[string]described)
	for desc := range descs {
		m := descText.FindStringSubmatch(desc.String())
		if m == nil {
			t.Fatalf("cannot read %s", desc)
		}
		if strings.HasPrefix(m[1], "millrace_") {
			all[m[1]] = described{name: m[1], help: m[2], labels: strings.Join(strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' }), ",")}
		}
	}
	families, err := d.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if m, ok := all[f.GetName()]; ok {
			m.kind = strings.ToLower(f.GetType().String())
			all[f.GetName()] = m
		}
	}
	return all
}

// braced returns the labels as the list of metrics has them.
func (m described) braced() string {
	if m.labels == "" {
		return ""
	}
	return "{" + m.labels + "}"
}

// Every metric in the documentation exists, with these labels, and the list in docs/operations.md
// has every one.
func TestDocsMetrics(t *testing.T) {
	t.Parallel()
	docs := readDocs(t)
	relay := newTestRelay(t)
	real := metricsOf(t, startDaemon(t, relay.url, t.TempDir(), "--references=on", "--links", "--graph", "--verify=flag", "--plc", "http://127.0.0.1:1"))
	if len(real) < 50 {
		t.Fatalf("found only %d metrics", len(real))
	}
	find(docs, `\b(millrace_[a-z0-9_]+[a-z0-9])\b`, func(at string, m []string) {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && real[base].kind == "histogram" {
				name = base
			}
		}
		if _, ok := real[name]; !ok && !strings.Contains(lineAt(docs, at), "-tags fdb") {
			t.Errorf("%s: there is no metric %s", at, name)
		}
	})
	_, list, _ := strings.Cut(textOf(t, docs, operationsDoc), "\n- `millrace_")
	list, _, _ = strings.Cut("\n- `millrace_"+list, "\n## ")
	for _, name := range slices.Sorted(maps.Keys(real)) {
		m := real[name]
		if !strings.Contains(list, "`"+m.name+m.braced()+"`") {
			t.Errorf("%s does not list `%s%s`: %s", operationsDoc, m.name, m.braced(), m.help)
		}
	}
}

// TestDocsNames: docs name each alert, and each reason for which subscribers are refused or end.
func TestDocsNames(t *testing.T) {
	docs := readDocs(t)
	for file, in := range map[string]struct{ doc, pattern string }{
		"deploy/prometheus/alerts.yml":            {operationsDoc, `- alert: (\w+)`},
		"public/ending.go":                        {wireDoc, `\tend\w+ += "(\w+)"`},
		"public/metrics.go":                       {wireDoc, `\treject\w+ += "(\w+)"`},
		"public/internal/admission/controller.go": {wireDoc, `\tReason\w+ += "(\w+)"`},
	} {
		text := textOf(t, docs, in.doc)
		names := regexp.MustCompile(in.pattern).FindAllStringSubmatch(readText(t, filepath.Join("..", "..", file)), -1)
		if len(names) < 5 {
			t.Errorf("%s has %d names", file, len(names))
		}
		for _, m := range names {
			if !strings.Contains(text, "`"+m[1]+"`") {
				t.Errorf("%s does not name %s of %s", in.doc, m[1], file)
			}
		}
	}
}
