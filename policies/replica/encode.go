// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// maxReportBytes is the length of an encoded report: half of what annotations may have in all.
const maxReportBytes = 128 << 10

// maxMissing is the largest number of policies that miss data. Many at once have one cause, which the first ones name.
const maxMissing = 32

// The limits of an example. They are those of v1alpha1.PolicyExample.
const (
	maxExamples     = 5
	maxNameBytes    = validation.DNS1123SubdomainMaxLength
	maxUserBytes    = 128
	maxMessageBytes = 256
	maxChanges      = 10
	maxChangeBytes  = 128
	// MaxProjects is the number of projects that a report and a status list for a policy.
	MaxProjects = 20
)

// detail limits the lists of a report.
type detail struct{ entries, projects, examples int }

// details are the limits that Encode tries, until the report fits. The last ones always do.
var details = []detail{{10_000, MaxProjects, maxExamples}, {10_000, MaxProjects, 1}, {10_000, 5, 0}, {500, 0, 0}, {64, 0, 0}}

// Encode returns the text of a report. What does not fit is omitted and counted, first examples and
// projects, and then policies: those with the most violations stay. Equal reports have equal texts.
func Encode(report Report) (string, error) {
	for _, limits := range details {
		text, err := json.Marshal(report.reduce(limits))
		if err != nil {
			return "", fmt.Errorf("encode report: %w", err)
		}
		if len(text) <= maxReportBytes {
			return string(text), nil
		}
	}
	return "", errors.New("encode report: it is too long")
}

func (r Report) reduce(limits detail) Report {
	byTotal := slices.Clone(r.Violations)
	slices.SortStableFunc(byTotal, func(a, b Violations) int { return cmp.Compare(b.Total, a.Total) })
	r.Policies, r.Omitted.Policies = first(r.Policies, limits.entries)
	r.Missing, _ = first(r.Missing, maxMissing)
	r.Violations, r.Omitted.Violations = first(byTotal, limits.entries)
	r.Violations = slices.Clone(r.Violations)
	for i := range r.Violations {
		v := &r.Violations[i]
		projects, examples := len(v.Projects), len(v.Examples)
		v.Projects, _ = first(v.Projects, limits.projects)
		v.Examples, _ = first(v.Examples, limits.examples)
		v.TimedOut, _ = first(v.TimedOut, limits.projects)
		r.Omitted.Projects += projects - len(v.Projects)
		r.Omitted.Examples += examples - len(v.Examples)
	}
	slices.SortFunc(r.Violations, func(a, b Violations) int { return cmp.Compare(a.Policy, b.Policy) })
	return r
}

// first returns the first elements of a list, and the number of the others.
func first[T any](list []T, most int) ([]T, int) {
	kept := list[:min(len(list), most)]
	return kept, len(list) - len(kept)
}

// Decode returns the report of a text. It accepts only what Encode writes: a text with other fields,
// in another order or beyond a limit is an error.
func Decode(text string) (Report, error) {
	if len(text) > maxReportBytes {
		return Report{}, fmt.Errorf("decode report: %d bytes, and at most %d are allowed", len(text), maxReportBytes)
	}
	var r Report
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Report{}, fmt.Errorf("decode report: %w", err)
	}
	if err := r.validate(); err != nil {
		return Report{}, fmt.Errorf("decode report: %w", err)
	}
	canonical, err := json.Marshal(r)
	if err != nil || !bytes.Equal(canonical, []byte(text)) {
		return Report{}, errors.New("decode report: it is not in the form in which the webhook writes reports")
	}
	return r, nil
}

var (
	policySetPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	digestPattern    = regexp.MustCompile(fmt.Sprintf("^[0-9a-f]{%d}$", 2*engine.VersionDigestBytes))
)

func (r *Report) validate() error {
	if r.Format != format {
		return fmt.Errorf("format %d, and %d is known", r.Format, format)
	}
	if !isText(r.Program, 64) || !policySetPattern.MatchString(r.PolicySet) {
		return errors.New("program or policySet is malformed")
	}
	var keys []string
	for i := range r.Policies {
		if err := r.Policies[i].validate(); err != nil {
			return fmt.Errorf("policies[%d]: %w", i, err)
		}
		keys = append(keys, r.Policies[i].Policy)
	}
	if !isAscending(keys) {
		return errors.New("policies: not in order")
	}
	keys = nil
	if len(r.Missing) > maxMissing {
		return errors.New("missing: too many")
	}
	for i, missing := range r.Missing {
		if len(validation.IsDNS1123Subdomain(missing.Policy)) > 0 || missing.Data == "" || !isText(missing.Data, maxMessageBytes) {
			return fmt.Errorf("missing[%d] is malformed", i)
		}
		keys = append(keys, missing.Policy)
	}
	if !isAscending(keys) {
		return errors.New("missing: not in order")
	}
	keys = nil
	for i := range r.Violations {
		if err := r.Violations[i].validate(); err != nil {
			return fmt.Errorf("violations[%d]: %w", i, err)
		}
		keys = append(keys, r.Violations[i].Policy)
	}
	if !isAscending(keys) {
		return errors.New("violations: not in order")
	}
	for _, n := range []int{r.Omitted.Policies, r.Omitted.Violations, r.Omitted.Projects, r.Omitted.Examples} {
		if n < 0 {
			return errors.New("omitted: a negative number")
		}
	}
	return nil
}

func (v *Version) validate() error {
	if len(validation.IsDNS1123Subdomain(v.Policy)) > 0 || v.Generation < 0 || !digestPattern.MatchString(v.Digest) {
		return errors.New("policy, generation or digest is malformed")
	}
	return nil
}

func (v *Violations) validate() error {
	if err := v.Version.validate(); err != nil {
		return err
	}
	for _, timedOut := range v.TimedOut {
		if !isProject(timedOut.Project) || timedOut.Evaluations <= 0 {
			return errors.New("timedOut is malformed")
		}
	}
	if v.Total < 0 || len(v.TimedOut) > MaxProjects || len(v.Projects) > MaxProjects || len(v.Examples) > maxExamples {
		return errors.New("total, or the number of projects, examples or timedOut, is out of range")
	}
	seen, sum := map[string]bool{}, int64(0)
	for _, p := range v.Projects {
		if !isProject(p.Project) || seen[p.Project] || p.Violations < 0 || p.Violations > v.Total-sum {
			return errors.New("projects: malformed, double, or more than the total")
		}
		seen[p.Project] = true
		sum += p.Violations
	}
	for i := range v.Examples {
		if !isExample(&v.Examples[i]) {
			return fmt.Errorf("examples[%d] is malformed", i)
		}
	}
	return nil
}

func isExample(e *v1alpha1.PolicyExample) bool {
	if len(e.Changes) > maxChanges || slices.ContainsFunc(e.Changes, func(path string) bool { return !isText(path, maxChangeBytes) }) {
		return false
	}
	return isProject(e.Project) && isProject(e.Namespace) && isText(e.Kind, validation.DNS1123LabelMaxLength) && e.Kind != "" &&
		isText(e.Name, maxNameBytes) && isText(e.User, maxUserBytes) && isText(e.Message, maxMessageBytes)
}

// isProject reports whether a text can be the name of a project, or of a namespace.
func isProject(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

// isText reports whether a text is short and has only printable characters.
func isText(text string, most int) bool {
	return len(text) <= most && utf8.ValidString(text) && strings.IndexFunc(text, isForbidden) < 0
}

func isForbidden(r rune) bool { return !unicode.IsGraphic(r) }

// shortText returns a text that isText accepts.
func shortText(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if isForbidden(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return v1alpha1.TruncateText(text, most)
}

// isAscending reports whether the keys are in order and differ.
func isAscending(keys []string) bool {
	for i := 1; i < len(keys); i++ {
		if keys[i-1] >= keys[i] {
			return false
		}
	}
	return true
}
