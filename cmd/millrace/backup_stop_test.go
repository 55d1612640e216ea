package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestStopEndsABackup: a stop waits for no backup, which leaves nothing.
func TestStopEndsABackup(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	began, goOn := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(began); <-goOn })
	copies := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case op.Kind == errorfs.OpLink:
			return syscall.EXDEV // it is another file system
		case op.Kind == errorfs.OpFileWrite && strings.HasPrefix(op.Path, parent):
			hold()
		}
		return nil
	}))
	d := startDaemonOn(t, testHooks{fs: copies}, newTestRelay(t).url, t.TempDir(), "--metrics-listen", "127.0.0.1:0")
	asked := make(chan error, 1)
	go func() {
		_, err := d.control.backUp(t.Context(), filepath.Join(parent, "saved"), patience)
		asked <- err
	}()
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- d.stop() }()
	<-d.copying.Done()
	close(goOn)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := <-asked; err == nil {
		t.Error("the backup is made")
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
