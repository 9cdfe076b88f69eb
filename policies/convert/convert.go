// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
)

// File is a file of the source.
type File struct {
	// Name is its path in the directory, and Text its content.
	Name string
	Text []byte
}

// Status is what became of an object of the source.
type Status string

// The statuses.
const (
	// StatusConverted: all of it is in the policies of the entry.
	StatusConverted Status = "converted"
	// StatusPartial: a part of it is in the policies, and another has no counterpart.
	StatusPartial Status = "partial"
	// StatusNotConverted: it has no counterpart.
	StatusNotConverted Status = "not converted"
	// StatusIgnored: it has no effect in the source, or none on pods.
	StatusIgnored Status = "ignored"
)

// Gap is a part of an object that has no counterpart, with what to do.
type Gap struct {
	// Part is its path or name; empty if it is the whole object.
	Part string `json:"part,omitempty"`
	// Reason says why it was not converted, and Fix what to do.
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

// Entry reports what became of one object of the source.
type Entry struct {
	// File and Object identify it: K8sRequiredLabels/team.
	File   string `json:"file"`
	Object string `json:"object"`
	Status Status `json:"status"`
	// Policies are the names of the policies that it became.
	Policies []string `json:"policies,omitempty"`
	// Gaps are why it was not converted, or only in part.
	Gaps []Gap `json:"gaps,omitempty"`
	// Notes are differences that do not change a result for most pods.
	Notes []string `json:"notes,omitempty"`
}

// refuse adds a gap.
func (e *Entry) refuse(part, reason, fix string) {
	e.Gaps = append(e.Gaps, Gap{Part: part, Reason: reason, Fix: fix})
}

// note adds a note once.
func (e *Entry) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(e.Notes, text) {
		e.Notes = append(e.Notes, text)
	}
}

// Converted is a policy with its cases.
type Converted struct {
	// Policy is complete, with its Rego.
	Policy v1alpha1.Policy
	// Cases are examples with what the converted policies decide.
	Cases []workbench.Case
	// Source names the object that it was.
	Source string
}

// Result is the result of a conversion.
type Result struct {
	// Policies are sorted by name. Each of them passes the check.
	Policies []Converted `json:"-"`
	// Entries are those of all objects, in the order of the files.
	Entries []Entry `json:"entries"`
}

// Incomplete counts the objects that were not converted, or only in part.
func (r *Result) Incomplete() int {
	count := 0
	for i := range r.Entries {
		if s := r.Entries[i].Status; s == StatusPartial || s == StatusNotConverted {
			count++
		}
	}
	return count
}

// Checker checks the source of a policy beside the libraries that it imports. [check.Process] does it with limits of time and
// memory.
type Checker func(ctx context.Context, source engine.Source, libraries ...engine.Source) (check.Result, error)

// regoForm is a text of a policy, with the libraries that it imports.
type regoForm struct {
	rego      string
	libraries []*sharedLibrary
}

// draft is a policy before its check.
type draft struct {
	policy v1alpha1.Policy
	// entry is that of the object that it was.
	entry *Entry
	// part names the part of the object, for gaps; empty for all of it.
	part string
	// examples are pods that the source suggests; each may be refused or not.
	examples []example
	// tests are those of the source, with what it expects.
	tests []sourceTest
	// changed is the part of an object that the policy sets; nil if it changes nothing.
	changed any
	// forms are texts of the Rego, of which the first that passes the check is used; nil if that of the policy is the only one.
	forms []regoForm
	// form is the index of the one in use.
	form int
	// template is the entry of the template whose libraries it imports.
	template *Entry
	// compare returns how the policy's findings differ from those of the source, for an example; empty if they do not.
	compare func(ctx context.Context, objects []map[string]any) (string, error)
}

// sourceTest is an example of the source's own tests.
type sourceTest struct {
	name   string
	object map[string]any
	// refused: the source refuses it.
	refused bool
}

// conversion collects the drafts and entries of one source.
type conversion struct {
	entries []*Entry
	drafts  []*draft
	names   map[string]bool
}

func newConversion() *conversion { return &conversion{names: make(map[string]bool)} }

// entry adds an entry for an object.
func (c *conversion) entry(file, object string) *Entry {
	e := &Entry{File: file, Object: object}
	c.entries = append(c.entries, e)
	return e
}

// add adds a draft, under a name that is not taken.
func (c *conversion) add(d *draft) {
	c.nameUniquely(&d.policy, d.policy.Name)
	c.drafts = append(c.drafts, d)
}

// nameUniquely completes a policy with a name that is not taken.
func (c *conversion) nameUniquely(policy *v1alpha1.Policy, wanted string) {
	base := policyName(wanted)
	name := base
	for n := 2; c.names[name]; n++ {
		suffix := fmt.Sprintf("-%d", n)
		name = strings.TrimRight(base[:min(len(base), maxName-len(suffix))], "-.") + suffix
	}
	c.names[name] = true
	policy.Name = name
	policy.APIVersion, policy.Kind = v1alpha1.GroupVersion.String(), "Policy"
}

// maxName is the longest name of a policy.
const maxName = 63

// policyName returns a name that a Policy can have.
func policyName(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	text := strings.Trim(b.String(), "-")
	text = strings.Trim(text[:min(len(text), maxName)], "-")
	if text == "" {
		return "policy"
	}
	return text
}

// finish checks the drafts, generates their cases and completes the entries.
func (c *conversion) finish(ctx context.Context, checker Checker) (*Result, error) {
	accepted, err := c.check(ctx, checker)
	if err != nil {
		return nil, err
	}
	libraries := importedLibraries(accepted)
	policies, err := generateCases(ctx, accepted, libraries)
	if err != nil {
		return nil, err
	}
	for _, l := range libraries {
		policies = append(policies, Converted{Policy: l.policy, Source: strings.Join(l.templates, ", ")})
	}
	slices.SortFunc(policies, func(a, b Converted) int { return strings.Compare(a.Policy.Name, b.Policy.Name) })
	result := &Result{Policies: policies}
	for _, e := range c.entries {
		switch {
		case e.Status == StatusIgnored:
		case len(e.Policies) == 0:
			e.Status = StatusNotConverted
		case len(e.Gaps) > 0:
			e.Status = StatusPartial
		default:
			e.Status = StatusConverted
		}
		result.Entries = append(result.Entries, *e)
	}
	return result, nil
}

// check returns the drafts that pass the check, and whose findings equal those of the source where that can be compared.
func (c *conversion) check(ctx context.Context, checker Checker) ([]*draft, error) {
	var accepted []*draft
	for _, d := range c.drafts {
		problem, err := c.checkDraft(ctx, d, checker)
		if err == nil && problem == "" && d.compare != nil {
			problem, err = d.compare(ctx, d.objects())
		}
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", d.policy.Name, err)
		}
		if problem != "" {
			d.entry.refuse(d.part, problem, "rewrite this part as a policy of Sluice")
			continue
		}
		d.entry.Policies = appendOnce(d.entry.Policies, d.policy.Name)
		accepted = append(accepted, d)
	}
	c.removeRejected(accepted)
	return accepted, nil
}

// removeRejected removes the policies that were not accepted from the entries of templates and tests, which name those of others.
func (c *conversion) removeRejected(accepted []*draft) {
	for _, e := range c.entries {
		named := len(e.Policies)
		e.Policies = slices.DeleteFunc(e.Policies, func(name string) bool {
			return !slices.ContainsFunc(accepted, func(d *draft) bool { return d.policy.Name == name })
		})
		if len(e.Policies) == 0 && named > 0 && len(e.Gaps) == 0 {
			e.refuse("", "the policies that it is about were not converted", "see their entries")
		}
	}
}

// checkDraft returns why the policy does not pass the check; empty if it does, with one of its forms.
func (c *conversion) checkDraft(ctx context.Context, d *draft, checker Checker) (string, error) {
	if len(d.forms) == 0 {
		d.forms = []regoForm{{rego: d.policy.Spec.Rego}}
	}
	var first string
	for i := range d.forms {
		d.form, d.policy.Spec.Rego = i, d.forms[i].rego
		problem, err := c.checkLibraries(ctx, checker, d.libraries())
		if err != nil {
			return "", err
		}
		if problem == "" {
			result, err := checker(ctx, engine.FromPolicy(&d.policy), sourcesOf(d.libraries())...)
			if err != nil || len(result.Problems) == 0 {
				return "", err
			}
			found := result.Problems[0]
			found.Policy = "the converted policy"
			problem = found.Error()
		}
		if first == "" {
			first = problem
		}
	}
	return first, nil
}

// libraries returns the libraries that the policy imports, itself and through others.
func (d *draft) libraries() []*sharedLibrary {
	if d.form >= len(d.forms) {
		return nil
	}
	return withImports(d.forms[d.form].libraries)
}

// objects returns all examples of the draft.
func (d *draft) objects() []map[string]any {
	var objects []map[string]any
	for _, e := range d.allExamples() {
		objects = append(objects, e.object)
	}
	return objects
}
