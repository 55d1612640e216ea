package linksapi

import (
	"fmt"
	"strings"

	"millrace/replay/links"
)

func answerCount(r *request) (any, error) {
	if r.unknown() {
		return totalAnswer{}, nil
	}
	records, err := r.links.CountRecords(r.ctx, r.set)
	return totalAnswer{records}, err
}

func answerDIDCount(r *request) (any, error) {
	if r.unknown() {
		return totalAnswer{}, nil
	}
	counts, err := r.links.Count(r.ctx, r.set)
	return totalAnswer{counts.Accounts}, err
}

func answerAll(r *request) (any, error) {
	return byCollection(r, func(c links.Counts) bothCounts { return bothCounts{c.Records, c.Accounts} })
}

func answerAllCounts(r *request) (any, error) {
	return byCollection(r, func(c links.Counts) uint64 { return c.Records })
}

// byCollection returns the counts of each source, converted by become, by collection and path. Its
// paths begin with a dot.
func byCollection[T any](r *request, become func(links.Counts) T) (any, error) {
	answer := allAnswer[T]{make(map[string]map[string]T)}
	if r.set.Subject == 0 {
		return answer, nil
	}
	sources, err := r.links.Sources(r.ctx, r.set.Subject)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		source, err := r.sourceOf(s.Path)
		if err != nil {
			return nil, err
		}
		collection, path, _ := strings.Cut(source, ":")
		if answer.Links[collection] == nil {
			answer.Links[collection] = make(map[string]T)
		}
		answer.Links[collection]["."+path] = become(s.Counts)
	}
	return answer, nil
}

// sourceOf returns the source that a number stands for.
func (r *request) sourceOf(path uint32) (string, error) {
	source, ok := r.api.cfg.Log.SourceOf(path)
	if !ok {
		return "", fmt.Errorf("a link has source %d, which the log does not know", path)
	}
	return source, nil
}

// maxMostLinked is how many subjects answerMostLinked names.
const maxMostLinked = 20

func answerMostLinked(r *request) (any, error) {
	most, err := r.links.MostLinked(r.ctx, maxMostLinked)
	if err != nil {
		return nil, err
	}
	subjects := make([]uint64, len(most.Sets))
	for i := range most.Sets {
		subjects[i] = most.Sets[i].Subject
	}
	names, err := r.api.Names(r.ctx, subjects)
	if err != nil {
		return nil, err
	}
	answer := mostLinkedAnswer{Subjects: []mostLinked{}, Others: most.Others}
	if !most.Since.IsZero() {
		answer.SinceUS = new(most.Since.UnixMicro())
	}
	for i, set := range most.Sets {
		source, err := r.sourceOf(set.Path)
		if err != nil {
			return nil, err
		}
		answer.Subjects = append(answer.Subjects, mostLinked{source, names[i], set.Records})
	}
	return answer, nil
}
