// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge"
)

const (
	// maxFindings limits the findings of one rule.
	maxFindings = 100
	// maxMessageBytes limits a message; longer ones are truncated.
	maxMessageBytes = 2048
)

// parseFindings parses the value of deny and warn: strings or {"msg", "field", "fix"}.
func parseFindings(policy string, value ast.Value) ([]merge.Finding, error) {
	return parseFindingSet(policy, value, func(element ast.Value) (merge.Finding, error) {
		if text, ok := element.(ast.String); ok {
			return newFinding(string(text), "", "")
		}
		fields, err := stringFields(element, "msg", "field", "fix")
		if err != nil {
			return merge.Finding{}, err
		}
		return newFinding(fields["msg"], fields["field"], fields["fix"])
	})
}

// parseViolations parses the value of violation as Gatekeeper does: {"msg"} and any other
// fields.
func parseViolations(policy string, value ast.Value) ([]merge.Finding, error) {
	return parseFindingSet(policy, value, func(element ast.Value) (merge.Finding, error) {
		object, ok := element.(ast.Object)
		if !ok {
			return merge.Finding{}, newValueError(`must be {"msg": …, "details": …}, and is %s`, ast.ValueName(element))
		}
		msg := object.Get(ast.StringTerm("msg"))
		if msg == nil {
			return merge.Finding{}, newValueError("has no msg")
		}
		text, ok := msg.Value.(ast.String)
		if !ok {
			return merge.Finding{}, newValueError("msg must be a string, and is %s", ast.ValueName(msg.Value))
		}
		return newFinding(string(text), "", "")
	})
}

func parseFindingSet(policy string, value ast.Value, read func(ast.Value) (merge.Finding, error)) ([]merge.Finding, error) {
	elements, err := setElements(value)
	if err != nil {
		return nil, err
	}
	more := max(0, len(elements)-maxFindings)
	var all []merge.Finding
	for _, element := range elements[:len(elements)-more] {
		finding, err := read(element.Value)
		if err != nil {
			return nil, err
		}
		finding.Policy = policy
		all = append(all, finding)
	}
	if more > 0 {
		all = append(all, merge.Finding{Policy: policy, Message: fmt.Sprintf("and %d more from the same policy", more)})
	}
	return all, nil
}

func newFinding(message, field, fix string) (merge.Finding, error) {
	if strings.TrimSpace(message) == "" {
		return merge.Finding{}, newValueError("the message is empty")
	}
	return merge.Finding{Message: singleLine(message), Field: singleLine(field), Fix: singleLine(fix)}, nil
}

// setElements returns the elements of a set in Rego's order.
func setElements(value ast.Value) ([]*ast.Term, error) {
	set, ok := value.(ast.Set)
	if !ok {
		return nil, newValueError("must be a set, and is %s", ast.ValueName(value))
	}
	return set.Slice(), nil
}

// stringFields returns the fields of an object that may have only these, all strings.
func stringFields(value ast.Value, allowed ...string) (map[string]string, error) {
	object, ok := value.(ast.Object)
	if !ok {
		return nil, newValueError("must be a string or {%s}, and is %s", strings.Join(allowed, ", "), ast.ValueName(value))
	}
	fields := make(map[string]string, object.Len())
	keys := object.KeysIterator()
	for key, more := keys.Next(); more; key, more = keys.Next() {
		name, ok := key.Value.(ast.String)
		if !ok || !slices.Contains(allowed, string(name)) {
			return nil, newValueError("has the field %s; %s are allowed", key, strings.Join(allowed, ", "))
		}
		text, ok := object.Get(key).Value.(ast.String)
		if !ok {
			return nil, newValueError("%s must be a string, and is %s", string(name), ast.ValueName(object.Get(key).Value))
		}
		fields[string(name)] = string(text)
	}
	return fields, nil
}

// singleLine replaces control characters and truncates the text: policies may compose it
// from what users wrote.
func singleLine(text string) string {
	clean := strings.IndexFunc(text, unicode.IsControl) < 0 && utf8.ValidString(text)
	if !clean {
		text = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(text, "\uFFFD"))
	}
	return truncateText(text, maxMessageBytes)
}

// truncateText shortens a text to a number of bytes, between two characters, and marks
// the cut.
func truncateText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const more = " …"
	cut := limit - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}

// failureFinding returns the denial of a policy that failed.
func (p *policy) failureFinding(err error) merge.Finding {
	finding := merge.Finding{
		Policy:  p.source.Name,
		Message: singleLine(fmt.Sprintf("the policy %s could not be evaluated: %v", p.source.Name, err)),
		Fix:     "report this to the cluster's administrators; until the policy is fixed, it refuses all objects that it matches",
	}
	var limit *LimitError
	switch {
	case errors.Is(err, ErrMissingData):
		finding.Fix = "report this to the cluster's administrators; until the data exists, it refuses all objects that it matches"
	case errors.Is(err, ErrDeadline):
		finding.Message = fmt.Sprintf("too large: the policy %s takes longer for it than a policy may", p.source.Name)
		finding.Fix = "use fewer containers, variables and volumes; report it to the cluster's administrators if others of this size are admitted"
	case errors.As(err, &limit):
		finding.Message = singleLine(fmt.Sprintf("too large: the policy %s cannot read a value of it: %v", p.source.Name, err))
		finding.Fix = "make this value smaller; report it to the cluster's administrators if the object has no such value"
	}
	return finding
}

// isPaused reports whether a pause turns the denials of the policy into warnings. Built-in policies
// stay in force, and those that stand for one of them.
func (p *policy) isPaused(in *Input) bool {
	return !in.PausedUntil.IsZero() && !p.source.BuiltIn && p.replacedPolicy() == "" && p.enforcement() != v1alpha1.EnforcementDryRun
}

// pausedFindings returns the denials of a paused policy as warnings.
func pausedFindings(denials []merge.Finding, until time.Time) []merge.Finding {
	warnings := slices.Clone(denials)
	for i := range warnings {
		warnings[i].Message = fmt.Sprintf("denied after %s, until when policies are paused: %s",
			until.UTC().Format(time.RFC3339), warnings[i].Message)
	}
	return warnings
}
