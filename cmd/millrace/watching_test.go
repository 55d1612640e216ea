package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var prometheusDir = filepath.Join("..", "..", "deploy", "prometheus")

// Prometheus takes the alert rules and their unit tests in deploy, where its promtool is installed,
// and there is a test of each alert. TestDocsMetrics checks the metrics that they name.
func TestAlertRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED: promtool is not installed")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}, {"check", "config", "prometheus.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = prometheusDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	rules, tests := readText(t, filepath.Join(prometheusDir, "alerts.yml")), readText(t, filepath.Join(prometheusDir, "alerts_test.yml"))
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 10 {
		t.Fatalf("found %d alerts", len(alerts))
	}
	for _, alert := range alerts {
		if !strings.Contains(tests, "alertname: "+alert[1]+", exp_alerts: [{") {
			t.Errorf("no test in alerts_test.yml fires %s", alert[1])
		}
	}
}

// dashboard is what the tests read of deploy/grafana/millrace.json.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID      int
		Title   string
		Type    string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr, RefID string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	fromJSON(t, readText(t, filepath.Join("..", "..", "deploy", "grafana", "millrace.json")), &d)
	if len(d.Panels) < 20 {
		t.Fatalf("the dashboard has %d panels", len(d.Panels))
	}
	return d
}

// No two panels of the dashboard have one number or overlap, and each but a row has a query.
func TestDashboardPanels(t *testing.T) {
	ids, cells := make(map[int]string), make(map[[2]int]string)
	for _, p := range readDashboard(t).Panels {
		if other, ok := ids[p.ID]; ok {
			t.Errorf("%s and %s have the number %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%s, a %s, has %d queries", p.Title, p.Type, len(p.Targets))
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := cells[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("%s is over %q or beyond column 24", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}

// A Prometheus that scrapes a server answers every query of the dashboard, where it is installed.
func TestDashboardQueries(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("SKIPPED: prometheus is not installed")
	}
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir(), "--references=on", "--links")
	s := subscribe(t, d.addr, "")
	relay.send <- identityFrame(t, 7).Data
	s.lines(t, 1)
	metrics := httptest.NewServer(promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{}))
	t.Cleanup(metrics.Close)

	addr := startPrometheus(t, program, strings.TrimPrefix(metrics.URL, "http://"))
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(target.Expr)
			waitFor(t, "data of the panel "+p.Title+", "+expr, func() bool { return seriesOf(addr, expr) > 0 })
		}
	}
}

// startPrometheus starts a Prometheus that scrapes target often, and returns its address.
func startPrometheus(t *testing.T, program, target string) string {
	t.Helper()
	addr, dir := freeAddr(t), t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	writeFile(t, config, fmt.Sprintf("global: {scrape_interval: 200ms}\nscrape_configs: [{job_name: millrace, static_configs: [{targets: [%q]}]}]\n", target))
	startForeign(t, addr, dir, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	return addr
}

// seriesOf returns how many series an instant query yields; none if it fails.
func seriesOf(addr, expr string) int {
	resp, err := http.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return 0
	}
	return len(answer.Data.Result)
}

func readText(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
