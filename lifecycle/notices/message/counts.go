// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/api/v1alpha1"
)

// Count is so many objects of one kind.
type Count struct {
	// Kind is theirs, as Kubernetes writes it: Job.
	Kind string
	// N is how many there are: 1 to 999999999.
	N int
}

// mostCounts is how many kinds a list may have.
const mostCounts = 64

var countForm = regexp.MustCompile(`^([A-Z][A-Za-z0-9]{0,62})=([1-9][0-9]{0,8})$`)

// Counts is the value of the inputs removed and kept: "Job=3,RoleBinding=2". It leaves
// out what there is none of.
func Counts(counts []Count) string {
	var parts []string
	for _, c := range counts {
		if c.N > 0 {
			parts = append(parts, c.Kind+"="+strconv.Itoa(c.N))
		}
	}
	return strings.Join(parts, ",")
}

// ParseCounts reads what [Counts] writes. An error says what is wrong with which part.
func ParseCounts(text string) (counts []Count, err error) {
	parts := strings.Split(text, ",")
	if len(parts) > mostCounts {
		return nil, fmt.Errorf("%d kinds are listed; at most %d are allowed", len(parts), mostCounts)
	}
	for _, part := range parts {
		m := countForm.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%q is not of the form Job=3", shorten(clean(part), nameLength))
		}
		if slices.ContainsFunc(counts, func(c Count) bool { return c.Kind == m[1] }) {
			return nil, fmt.Errorf("%s is listed twice", m[1])
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		counts = append(counts, Count{Kind: m[1], N: n})
	}
	return counts, nil
}

// inWords is such a list as people read it.
func (p *Page) inWords(counts []Count) string {
	var words []string
	for _, c := range counts {
		words = append(words, strconv.Itoa(c.N)+" "+p.kindWord(c))
	}
	return strings.Join(words, ", ")
}

// kindWord is what so many objects of a kind are called. People know volumes by another
// name than Kubernetes does.
func (p *Page) kindWord(c Count) string {
	word := c.Kind
	if word == "PersistentVolumeClaim" {
		word = "volume"
		if p.Language == string(v1alpha1.LanguageGerman) {
			word = "Volume"
		}
	}
	switch {
	case c.N == 1:
		return word
	case strings.HasSuffix(word, "y") && !strings.HasSuffix(word, "ay"):
		return strings.TrimSuffix(word, "y") + "ies"
	case strings.HasSuffix(word, "ss"), strings.HasSuffix(word, "x"), strings.HasSuffix(word, "ch"):
		return word + "es"
	case strings.HasSuffix(word, "s"): // Endpoints
		return word
	}
	return word + "s"
}
