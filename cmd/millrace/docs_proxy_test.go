package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The configurations in deploy pass subscribers through nginx and Caddy, where they are installed:
// events, long URLs, look-ups with large bodies, and the client's address.
func TestProxies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		program, file, listen string
		config                func(site, dir string) string
		args                  func(config, dir string) []string
	}{
		{"nginx", "nginx.conf", "listen 80;", func(site, dir string) string {
			return fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log;\nevents { worker_connections 64; }\n"+
				"http { access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;\n"+
				"scgi_temp_path %[1]s/scgi; uwsgi_temp_path %[1]s/uwsgi;\n%[2]s\n}\n", dir, site)
		}, func(config, dir string) []string { return []string{"-c", config, "-p", dir} }},
		{"caddy", "Caddyfile", "millrace.example.com", func(site, _ string) string {
			return "{\n\tadmin off\n\tauto_https off\n}\n" + site
		}, func(config, _ string) []string { return []string{"run", "--adapter", "caddyfile", "--config", config} }},
	} {
		t.Run(tc.program, func(t *testing.T) {
			program, err := exec.LookPath(tc.program)
			if err != nil {
				t.Skipf("SKIPPED: %s is not installed", tc.program)
			}
			t.Parallel()
			relay := newTestRelay(t)
			d := startDaemon(t, relay.url, t.TempDir(), "--trusted-proxies", "127.0.0.1", "--max-connections-per-ip", "2", "--memory", "256MiB")
			site, err := os.ReadFile(filepath.Join("..", "..", "deploy", tc.file))
			if err != nil {
				t.Fatal(err)
			}
			addr, dir := freeAddr(t), t.TempDir()
			listen := map[string]string{"nginx": "listen " + addr + ";", "caddy": "http://" + addr}[tc.program]
			text := strings.ReplaceAll(strings.Replace(string(site), tc.listen, listen, 1), "127.0.0.1:6008", d.addr)
			if !strings.Contains(text, listen) || !strings.Contains(text, d.addr) {
				t.Fatalf("%s is not as this test knows it", tc.file)
			}
			config := filepath.Join(dir, tc.file)
			writeFile(t, config, tc.config(text, dir))
			startForeign(t, addr, dir, program, tc.args(config, dir)...)
			throughProxy(t, relay, addr)
		})
	}
}

// startForeign starts a server that others have written, at home in dir, waits until it listens at
// addr, and ends it with the test.
func startForeign(t *testing.T, addr, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", out.String())
		}
	})
	waitServing(t, addr)
}

// throughProxy is a client's day behind a proxy at addr.
func throughProxy(t *testing.T, relay *testRelay, addr string) {
	t.Helper()
	query := strings.Builder{}
	query.WriteString("wantedDids=did:plc:ewvi7nxzyoun6zhxrhs64oiz")
	for i := range 9_999 {
		fmt.Fprintf(&query, "&wantedDids=did:plc:%024d", i)
	}
	s := subscribe(t, addr, query.String())
	relay.send <- identityFrame(t, 7).Data
	if got := s.lines(t, 1)[0]; !strings.Contains(got, `"seq":7`) {
		t.Errorf("got %s", got)
	}
	resp, err := http.Post("http://"+addr+"/uids", "application/json", strings.NewReader(`{"uids":["1"],"strings":[`+strings.Repeat(" ", 1500<<10)+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a look-up of 1.5 MiB: %s", resp.Status)
	}
	if resp, err = http.Get("http://" + addr + "/readyz"); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	index, err := http.Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer index.Body.Close()
	if text, err := io.ReadAll(index.Body); err != nil || !strings.Contains(string(text), "'ws://"+addr+"/subscribe?") {
		t.Errorf("/ does not say that %s is the address: %v\n%s", addr, err, text)
	}
	if !strings.HasPrefix(resp.Header.Get("Access-Control-Allow-Origin"), "*") {
		t.Errorf("/readyz: %s, %v", resp.Status, resp.Header)
	}
}
