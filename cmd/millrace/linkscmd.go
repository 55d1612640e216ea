package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"millrace/replay/links"
	"millrace/replay/references"
)

func linksCommand() *command {
	return &command{
		name: "millrace links", summary: "check who points at what, of a server that is not running",
		subs: []*command{storeCheckCommand("links verify", "check links against the reference store's table, and their counts",
			`The links must be those of the table's rows, and the counts those of the links. millrace references verify does
this too, and checks the table.
Exit code 0: they are; 1: they are not, and how is on standard output, a line a problem; or they could not be checked.`, runLinksVerify)},
	}
}

func runLinksVerify(ctx context.Context, s *refsStores, _ []string, stdout, stderr io.Writer) error {
	report, err := verifyLinks(ctx, s.store, stderr)
	if errors.Is(err, links.ErrBuilding) {
		return errors.New("there are no complete links: run the server with --links until its log says that links are complete")
	}
	if err != nil {
		return err
	}
	printProblems(stdout, report.Examples, report.Problems)
	fmt.Fprintf(stdout, "%s; %d problems\n", linksFound(report), report.Problems)
	if report.Problems > 0 {
		return errors.New("the links are damaged: run the server once without --links, which drops them, and then with it, which builds them anew")
	}
	return nil
}

// verifyLinks checks links and says how far it is.
func verifyLinks(ctx context.Context, store *references.Store, stderr io.Writer) (*links.Report, error) {
	return links.Verify(ctx, store, sayCount(stderr, "keys of rows and links"))
}

func linksFound(r *links.Report) string {
	return fmt.Sprintf("%d links in %d sets, %d of them large", r.Links, r.Sets, r.Large)
}

// printProblems prints the first problems, a line each, and how many more there are.
func printProblems[T any](stdout io.Writer, examples []T, problems uint64) {
	for _, p := range examples {
		fmt.Fprintln(stdout, p)
	}
	if more := problems - uint64(len(examples)); more > 0 {
		fmt.Fprintf(stdout, "and %d more\n", more)
	}
}
