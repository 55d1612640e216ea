package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"millrace/dict"
)

// version is the release that this program is, or becomes; docs/CHANGELOG.md says what is in it.
const version = "0.1.0"

// The modules whose versions say most about a build.
const (
	pebbleModule  = "github.com/cockroachdb/pebble/v2"
	libzstdModule = "github.com/DataDog/zstd"
	pureModule    = "github.com/klauspost/compress"
)

// build is what is known of how this program was made. What is not known is "unknown".
type build struct {
	version  string // with the commit as build metadata, where it is known
	commit   string // with date, and whether the tree had changes
	golang   string
	zstd     string // what compresses events
	uidStore string // what --intern can be
	pebble   string
}

// thisBuild reads what the Go tool and the linker put into the program.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return readBuild(info)
}

func readBuild(info *debug.BuildInfo) build {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	modules := make(map[string]string)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules[m.Path] = m.Version
	}
	b := build{
		version: versionOf(settings),
		commit:  commitOf(settings),
		golang:  fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH),
		zstd:    "klauspost/compress " + known(modules[pureModule]) + " (pure Go; built with cgo, libzstd is several times faster)",
		pebble:  known(modules[pebbleModule]),
	}
	if dict.Libzstd {
		b.zstd = "libzstd by way of cgo (DataDog/zstd " + known(modules[libzstdModule]) + ")"
	}
	b.uidStore = "pebble, off"
	if hasFoundation {
		b.uidStore = "pebble, fdb, off"
	}
	return b
}

// versionOf returns the version, and the commit as Semantic Versioning's build metadata if the
// program was built from a git tree. It is 0.1.0+53d1cb5f10a9, or 0.1.0+53d1cb5f10a9.dirty of a
// tree with changes.
func versionOf(settings map[string]string) string {
	revision := settings["vcs.revision"]
	if revision == "" {
		return version
	}
	full := version + "+" + revision[:min(len(revision), 12)]
	if settings["vcs.modified"] == "true" {
		full += ".dirty"
	}
	return full
}

func commitOf(settings map[string]string) string {
	commit := known(settings["vcs.revision"])
	if at := settings["vcs.time"]; at != "" {
		commit += " of " + at
	}
	if settings["vcs.modified"] == "true" {
		commit += ", with changes"
	}
	return commit
}

func known(s string) string { return cmp.Or(s, "unknown") }

// runVersion prints the version on the first line, as other programs may read it, and the rest
// below.
func runVersion(_ context.Context, _ []string, stdout, _ io.Writer) error {
	b := thisBuild()
	fmt.Fprintf(stdout, "millrace %s\n", b.version)
	for _, row := range [][2]string{
		{"commit", b.commit}, {"go", b.golang}, {"pebble", b.pebble}, {"zstd", b.zstd}, {"--intern", b.uidStore},
	} {
		fmt.Fprintf(stdout, "  %-9s %s\n", row[0], row[1])
	}
	return nil
}
