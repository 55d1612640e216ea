package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace/public/client"
)

// maxUIDArgs is how many a server looks up at once.
const maxUIDArgs = 1000

func uidCommand() *command {
	fs := newFlags("uid")
	server := fs.String("url", "http://127.0.0.1:6008", "the server's `URL`")
	return &command{
		name: "millrace uid", args: "DID|URI|UID…", summary: "ask a running server what UIDs stand for, or what stands for them",
		about: "It prints a line for each: the UID, a tab, the string. What the server does not know is \"unknown\", and makes the exit code 1.",
		flags: fs, check: checkUIDArgs,
		run: func(ctx context.Context, args []string, stdout, _ io.Writer) error {
			base, err := client.SubscribeURL(*server)
			if err != nil {
				return usageError{fmt.Errorf("--url: %w", err)}
			}
			base.Scheme = strings.Replace(base.Scheme, "ws", "http", 1)
			base.Path = strings.TrimSuffix(base.Path, "/subscribe") + "/uids"
			return lookupUIDs(ctx, base, args, stdout)
		},
	}
}

func checkUIDArgs(args []string) error {
	if len(args) > maxUIDArgs {
		return fmt.Errorf("%d arguments are too many: a server looks up %d at once", len(args), maxUIDArgs)
	}
	for _, a := range args {
		if !isUID(a) && !strings.HasPrefix(a, "did:") && !strings.HasPrefix(a, "at://") {
			return fmt.Errorf("%.80q is no DID (did:…), AT URI (at://…) or UID (a number)", a)
		}
	}
	return nil
}

// lookupUIDs prints the UID and the string of each argument, "unknown" for one that has no other
// half, and fails if anything is.
func lookupUIDs(ctx context.Context, u *url.URL, args []string, stdout io.Writer) error {
	request := map[string][]string{"strings": {}, "uids": {}}
	for _, a := range args {
		key := "strings"
		if isUID(a) {
			key = "uids"
		}
		request[key] = append(request[key], a)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	// A redirect may make a GET of the request.
	asker := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := asker.Do(req)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	defer resp.Body.Close()
	if to, err := resp.Location(); err == nil {
		return fmt.Errorf("%s: %s: it is at %s", u.Redacted(), resp.Status, to.Redacted())
	}
	if resp.StatusCode != http.StatusOK {
		said := fmt.Sprintf("%s: %s", u.Redacted(), resp.Status)
		if strings.Contains(resp.Header.Get("Content-Type"), "html") {
			return errors.New(said) // the rest is a page of a proxy's
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s", said, strings.TrimSpace(string(text)))
	}
	var answer struct{ Strings, UIDs map[string]*string }
	err = json.NewDecoder(resp.Body).Decode(&answer)
	if err == nil && (answer.Strings == nil || answer.UIDs == nil) {
		err = errors.New("strings or uids are missing; is --url right?")
	}
	if err != nil {
		return fmt.Errorf("%s does not answer as a millrace: %w", u.Redacted(), err)
	}
	unknown := 0
	for _, a := range args {
		uid, str := answer.Strings[a], &a
		if isUID(a) {
			uid, str = &a, answer.UIDs[a]
		}
		if uid == nil || str == nil {
			unknown++
			fmt.Fprintf(stdout, "unknown\t%s\n", a)
			continue
		}
		fmt.Fprintf(stdout, "%s\t%s\n", *uid, *str)
	}
	if unknown > 0 {
		return fmt.Errorf("%d of %d are unknown to the server", unknown, len(args))
	}
	return nil
}

// isUID distinguishes UIDs from DIDs and AT URIs, which begin with a letter.
func isUID(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}
