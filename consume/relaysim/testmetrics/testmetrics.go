// Package testmetrics reads the metrics of a registry, for tests.
package testmetrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Values returns the counters, gauges and numbers of observations of the metrics whose names begin
// with prefix: by name, without prefix, and the values of its labels, with a space before each.
func Values(t *testing.T, from prometheus.Gatherer, prefix string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		begin, ok := strings.CutPrefix(f.GetName(), prefix)
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			name := begin
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}
