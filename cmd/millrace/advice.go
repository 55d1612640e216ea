package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern"
	"millrace/intern/kv/pebbleguard"
	"millrace/replay"
	"millrace/replay/references"
)

// advised is an error and what to do about it, which is printed on a line of its own.
type advised struct {
	err    error
	advice string
}

func (e *advised) Error() string { return e.err.Error() + "\n  " + e.advice }
func (e *advised) Unwrap() error { return e.err }

// advise adds to err what to do about it, in whole sentences. An error that has advice already
// keeps that.
func advise(err error, advice string) error {
	if err == nil || errors.As(err, new(*advised)) {
		return err
	}
	return &advised{err, advice}
}

// isLocked reports whether a store could not be opened since another process has it open.
func isLocked(err error) bool {
	return errors.Is(err, replay.ErrInUse)
}

// adviseDataDir explains why the data directory, or a store in it, could not be opened.
func adviseDataDir(err error, dataDir string) error {
	abs, absErr := filepath.Abs(dataDir)
	if absErr != nil {
		abs = dataDir
	}
	switch {
	case err == nil, errors.As(err, new(*advised)): // it is about something else
		return err
	case isLocked(err):
		return advise(fmt.Errorf("--data-dir %s is in use by another process", dataDir),
			fmt.Sprintf("Most likely another millrace runs on it (fuser %s/log/LOCK names it). Stop that one, or give this one a --data-dir of its own.", abs))
	case errors.Is(err, os.ErrPermission):
		return advise(fmt.Errorf("--data-dir %s: %w", dataDir, syscallOf(err)),
			fmt.Sprintf("millrace runs as user %[1]d, who may not write there. Give it the directory (chown -R %[1]d %[2]s; chmod -R u+rwX %[2]s), or name another with --data-dir.",
				os.Geteuid(), abs))
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return advise(fmt.Errorf("--data-dir %s: %w", dataDir, syscallOf(err)),
			"Free some room there (df and df -i show it), then start again: what was committed is safe. Smaller --retention or --retention-bytes keep the log smaller.")
	case pebbleguard.TooManyFiles(err):
		return advise(fmt.Errorf("--data-dir %s: %w", dataDir, syscallOf(err)), raiseOpenFiles)
	case errors.Is(err, syscall.EROFS):
		return advise(fmt.Errorf("--data-dir %s: %w", dataDir, syscallOf(err)), "The file system is mounted read-only. Name another directory with --data-dir.")
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, os.ErrExist), errors.Is(err, os.ErrNotExist):
		if target, notLink := os.Readlink(dataDir); notLink == nil {
			err = fmt.Errorf("it is a link to %s, which is no directory: %w", target, err)
		}
		return advise(fmt.Errorf("--data-dir %s: %w", dataDir, err), "No directory can be made there. Name another with --data-dir.")
	case isNewer(err):
		return adviseNewer(err, dataDir)
	case errors.Is(err, intern.ErrPrefixBits):
		return advise(err, "They are fixed when a store is made: give --uid-prefix-bits the number it was made with.")
	case errors.Is(err, intern.ErrUnfinished):
		return advise(err, "millrace intern import with the same file goes on where it stopped.")
	}
	return err
}

// isNewer says whether a newer millrace, or its Pebble, wrote a store.
func isNewer(err error) bool {
	return errors.Is(err, replay.ErrNewerFormat) || errors.Is(err, intern.ErrNewerFormat) || errors.Is(err, references.ErrNewerFormat) ||
		err != nil && strings.Contains(err.Error(), "unknown format major version") // Pebble's, which has no type
}

// adviseNewer adds which build a store of a newer format needs. Other errors stay as they are.
func adviseNewer(err error, dataDir string) error {
	if !isNewer(err) {
		return err
	}
	by := "A newer millrace"
	run, _ := readDataFile[lastRun](dataDir, lastRunFile) // what cannot be read is not known
	backup, _ := readBackupManifest(dataDir)
	switch {
	case run != nil:
		by = "millrace " + run.Version
	case backup != nil:
		by = "millrace " + backup.Version
	}
	return advise(err, fmt.Sprintf("%s wrote it, and this is millrace %s: start that one or a newer one, restore a backup from before the upgrade, or give this one another --data-dir.",
		by, thisBuild().version))
}

// refuseNewer returns an error if a newer millrace wrote a store of dataDir ("": none). The
// stores are opened for reading only, and nothing changes. If this build had them open last, none
// is. What else is wrong is found later.
func refuseNewer(ctx context.Context, dataDir string) error {
	run, err := readDataFile[lastRun](dataDir, lastRunFile)
	if dataDir == "" || err == nil && run != nil && run.Version == thisBuild().version {
		return nil
	}
	for _, err := range new(storesFound).lookAtStores(ctx, dataDir, &lookFS{FS: vfs.Default}) {
		if isNewer(err) {
			return err
		}
	}
	return nil
}

// adviseMachine adds what to do to an error of the machine's that any command may end with. A store
// that has failed says that itself.
func adviseMachine(err error) error {
	switch {
	case errors.Is(err, pebbleguard.ErrFailed):
	case errors.Is(err, intern.ErrWentBack):
		return advise(err, "Stop every server that uses it, put the newer state back or run millrace intern skip-ahead, so that no UID is given twice, and start them again.")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return advise(err, "Free some room there (df and df -i show it), or name a place on another disk, then run it again.")
	case errors.Is(err, syscall.EROFS):
		return advise(err, "The file system is mounted read-only: mount it for writing, or name a place on another.")
	case errors.Is(err, syscall.EIO):
		return advise(err, "The disk has failed: the kernel's log (dmesg) says more.")
	case pebbleguard.TooManyFiles(err) && !strings.Contains(err.Error(), "LimitNOFILE="):
		return advise(err, raiseOpenFiles)
	}
	return err
}

// adviseStores says what to do if a command cannot open a server's store.
func adviseStores(err error) error {
	switch {
	case isLocked(err):
		return advise(err, "If a server uses it, stop the server first.")
	case errors.Is(err, os.ErrPermission):
		return advise(err, runAsServer)
	}
	return err
}

// syscallOf returns the operating system's error with the path it is about, without what was
// wrapped around.
func syscallOf(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path
	}
	return err
}

// adviseListen explains why an address could not be listened on.
func adviseListen(err error, flagName, address string) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	said := fmt.Errorf("--%s %s: %w", flagName, address, err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return advise(said, fmt.Sprintf("Another process listens there, perhaps another millrace (ss -ltnp names it), or --listen and --metrics-listen have one port. Stop it, or choose another address with --%s.", flagName))
	case pebbleguard.TooManyFiles(err):
		return advise(said, raiseOpenFiles)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return advise(said, "This machine has no such address. Give one that it has, or only a port, such as :6008, for all of them.")
	case errors.Is(err, os.ErrPermission):
		return advise(said, "Ports below 1024 need root or CAP_NET_BIND_SERVICE. Choose a higher port, and put a proxy in front (docs/operations.md).")
	}
	return advise(said, "Give host:port, such as 127.0.0.1:6008, or only a port, such as :6008.")
}
