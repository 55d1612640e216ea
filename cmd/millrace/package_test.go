package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackageEnablesService: an installation enables the service and a removal disables it, whether
// systemd runs or an image is being made; an upgrade leaves that as it is.
func TestPackageEnablesService(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ script, how, want string }{
		{"postinstall", "1", "enable millrace.service"}, {"postinstall", "2", ""},
		{"preremove", "0", "disable millrace.service"}, {"preremove", "1", ""},
	} {
		bin := t.TempDir()
		said := filepath.Join(bin, "said")
		for _, name := range []string{"systemctl", "systemd-sysusers", "chgrp", "rm"} {
			script := "#!/bin/sh\necho " + name + " \"$@\" >>" + said + "\n"
			if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "../../deploy/package/"+tc.script, tc.how)
		cmd.Env = []string{"PATH=" + bin}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", tc.script, tc.how, err, out)
		}
		b, _ := os.ReadFile(said) // nothing may have been said
		if tc.want != "" && !strings.Contains(string(b), "systemctl "+tc.want) || tc.want == "" && strings.Contains(string(b), "able millrace") {
			t.Errorf("%s %s: %s", tc.script, tc.how, b)
		}
	}
}
