package main

import (
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/dict"
)

func TestVersion(t *testing.T) {
	for _, word := range []string{"version", "--version"} {
		code, out := millrace(t, word)
		if code != exitOK || !strings.HasPrefix(out, "millrace "+thisBuild().version+"\n") {
			t.Errorf("millrace %s: exit code %d\n%s", word, code, out)
		}
		for _, want := range []string{"commit ", "go ", "pebble ", "zstd ", "--intern "} {
			if !strings.Contains(out, "\n  "+want) {
				t.Errorf("millrace %s says nothing of %s:\n%s", word, want, out)
			}
		}
	}
	if code, out := millrace(t, "version", "please"); code != exitUsage {
		t.Errorf("millrace version please: exit code %d\n%s", code, out)
	}
}

func TestReadBuild(t *testing.T) {
	info := &debug.BuildInfo{
		Deps: []*debug.Module{
			{Path: pebbleModule, Version: "v2.1.0", Replace: &debug.Module{Path: pebbleModule, Version: "v2.1.1"}},
			{Path: libzstdModule, Version: "v1.5.7"},
			{Path: pureModule, Version: "v1.18.0"},
		},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"},
			{Key: "vcs.time", Value: "2026-11-20T00:00:00Z"}, {Key: "vcs.modified", Value: "true"},
		},
	}
	got := readBuild(info)
	want := build{
		version: "0.1.0+0123456789ab.dirty", commit: "0123456789abcdef of 2026-11-20T00:00:00Z, with changes", golang: got.golang,
		zstd:   "klauspost/compress v1.18.0 (pure Go; built with cgo, libzstd is several times faster)",
		pebble: "v2.1.1", uidStore: "pebble, off",
	}
	if hasFoundation {
		want.uidStore = "pebble, fdb, off"
	}
	if dict.Libzstd {
		want.zstd = "libzstd by way of cgo (DataDog/zstd v1.5.7)"
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(build{})); diff != "" {
		t.Error(diff)
	}
	got = readBuild(&debug.BuildInfo{})
	if got.version != "0.1.0" || got.commit != "unknown" || got.pebble != "unknown" {
		t.Errorf("of an unknown build: %+v", got)
	}
}

// The newest release of docs/CHANGELOG.md is the version that the program reports.
func TestVersionIsTheChangelogs(t *testing.T) {
	text := textOf(t, readDocs(t), "docs/CHANGELOG.md")
	m := regexp.MustCompile(`(?m)^## \[([0-9][^\]]*)\]`).FindStringSubmatch(text)
	if m == nil || m[1] != version {
		t.Errorf("the newest release in docs/CHANGELOG.md is %v, the program's version is %s", m, version)
	}
}
