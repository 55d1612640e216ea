package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"millrace/public/client"
)

// maxExcerpt is how many characters of a record a readable line shows.
const maxExcerpt = 100

// Colours, as ANSI escapes.
const (
	colourNone   = "\x1b[0m"
	colourDim    = "\x1b[2m"
	colourRed    = "\x1b[31m"
	colourGreen  = "\x1b[32m"
	colourYellow = "\x1b[33m"
	colourCyan   = "\x1b[36m"
	colourPurple = "\x1b[35m"
)

// isTerminal says whether w is one.
func isTerminal(w io.Writer) bool {
	if o, ok := w.(*checkedOutput); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// wantsColour honours NO_COLOR (no-color.org) and terminals that cannot.
func wantsColour() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// form writes events for people.
type form struct {
	colour bool
	zone   *time.Location
}

// appendColoured appends s in a colour.
func (f form) appendColoured(dst []byte, colour, s string) []byte {
	if !f.colour {
		return append(dst, s...)
	}
	return append(append(append(dst, colour...), s...), colourNone...)
}

// pad appends s, and blanks up to a width.
func (f form) pad(dst []byte, colour, s string, width int) []byte {
	dst = f.appendColoured(dst, colour, s)
	if n := width - len(s); n > 0 {
		dst = append(dst, strings.Repeat(" ", n)...)
	}
	return append(dst, ' ')
}

// appendEvent appends one line:
//
//	21:30:05.123 create app.bsky.feed.post did:plc:…/3k… what it says
func (f form) appendEvent(dst []byte, e *client.Event) []byte {
	dst = f.appendColoured(dst, colourDim, e.Time().In(f.zone).Format("15:04:05.000"))
	dst = append(dst, ' ')
	if c := e.Commit; c != nil {
		colour := map[string]string{client.OpCreate: colourGreen, client.OpUpdate: colourYellow, client.OpDelete: colourRed}[c.Operation]
		dst = f.pad(dst, colour, printable(c.Operation, maxExcerpt), len("identity"))
		dst = f.pad(dst, colourCyan, printable(c.Collection, maxExcerpt), len("app.bsky.graph.listitem"))
		dst = f.appendColoured(dst, colourDim, printable(e.DID+"/"+c.RKey, 3*maxExcerpt))
		text := excerpt(c.Record)
		if text == "" && len(e.DeletedReferences) > 0 {
			text = "→ " + printable(e.DeletedReferences[0].Subject, maxExcerpt)
		}
		if text != "" {
			dst = append(append(dst, ' '), text...)
		}
	} else {
		dst = f.pad(dst, colourPurple, printable(string(e.Kind), maxExcerpt), len("identity"))
		dst = append(dst, printable(ofAccount(e), 3*maxExcerpt)...)
	}
	if e.Unverified != "" {
		dst = f.appendColoured(append(dst, ' '), colourRed, "unverified: "+printable(e.Unverified, maxExcerpt))
	}
	return append(dst, '\n')
}

// ofAccount is what an event that is no commit says.
func ofAccount(e *client.Event) string {
	switch {
	case e.Identity != nil:
		return strings.TrimSpace(e.Identity.DID + " " + e.Identity.Handle)
	case e.Account != nil && e.Account.Active:
		return strings.TrimSpace(e.Account.DID + " active " + e.Account.Status)
	case e.Account != nil:
		return strings.TrimSpace(e.Account.DID + " inactive " + e.Account.Status)
	case e.Sync != nil:
		return e.Sync.DID + " " + e.Sync.Rev
	}
	return printable(string(e.Raw), maxExcerpt)
}

// excerpt is what a record says, as far as one line can show.
func excerpt(record json.RawMessage) string {
	if len(record) == 0 {
		return ""
	}
	var r struct {
		Text        string
		DisplayName string `json:"displayName"`
		Name        string
		Subject     json.RawMessage
	}
	if err := json.Unmarshal(record, &r); err == nil {
		var subject struct{ URI string }
		var name string
		switch {
		case r.Text != "":
			return printable(r.Text, maxExcerpt)
		case json.Unmarshal(r.Subject, &name) == nil && name != "":
			return "→ " + printable(name, maxExcerpt)
		case json.Unmarshal(r.Subject, &subject) == nil && subject.URI != "":
			return "→ " + printable(subject.URI, maxExcerpt)
		case r.DisplayName != "":
			return printable(r.DisplayName, maxExcerpt)
		case r.Name != "":
			return printable(r.Name, maxExcerpt)
		}
	}
	return printable(string(record), maxExcerpt)
}

// printLine prints a line that may have words of a server's.
func printLine(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, printable(fmt.Sprintf(format, args...), math.MaxInt))
}

// printable is s on one line, cut to so many characters, without what could steer a terminal or
// turn the line around. Anybody may write anything into a record.
func printable(s string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == most {
			b.WriteRune('…')
			break
		}
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = '·'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}
