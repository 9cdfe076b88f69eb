// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"encoding/json"
	"fmt"

	"sluice.dev/policies/engine"
)

// setting looks whether a setting is what it must be.
func (l *Look) setting(ctx context.Context, r *engine.Requirement) (*Missing, error) {
	o := of(r.Setting)
	seen, err := l.at(ctx, o)
	if err != nil {
		return nil, err
	}
	switch {
	case seen.barred != "":
		return fault(r, seen.barred, seen.fix), nil
	case seen.content == nil && r.Optional:
		return nil, nil
	case seen.content == nil:
		return fault(r, seen.absent, r.Fix), nil
	}
	value, found, err := Find(seen.content, r.Setting.Path)
	where := place(r.Setting.Path) + " of " + o.String()
	switch {
	case err != nil:
		return fault(r, short(fmt.Sprintf("%s: %v", o, err)), r.Fix), nil
	case r.HasIs && !meets(r.Is, value):
		return fault(r, where+" is "+shown(value)+" and must "+verb(r.Is)+" "+wish(r.Is), r.Fix), nil
	case !r.HasIs && !found:
		return fault(r, where+" is not there", r.Fix), nil
	}
	return nil, nil
}

// wanted is what policies are told of a setting: the text that stands there, else
// the default. Where that cannot be told it stays what it was.
func (l *Look) wanted(ctx context.Context, r *engine.Requirement, known map[string]string) (string, *Missing, error) {
	before, ok := known[r.As]
	if !ok {
		before = r.Default
	}
	o := of(r.Setting)
	seen, err := l.at(ctx, o)
	if err != nil {
		return "", nil, err
	}
	if seen.barred != "" {
		return before, fault(r, seen.barred, seen.fix), nil
	}
	value, _, err := Find(seen.content, r.Setting.Path)
	if err != nil {
		return before, fault(r, short(fmt.Sprintf("%s: %v", o, err)), mend(r)), nil
	}
	text, isText := value.(string)
	switch {
	case value == nil, isText && text == "":
		return r.Default, nil, nil
	case !isText, len(text) > maxValue:
		what := fmt.Sprintf("%s of %s is %s and must be a text of at most %d bytes", place(r.Setting.Path), o, shown(value), maxValue)
		return before, fault(r, what, mend(r)), nil
	}
	return text, nil, nil
}

// mend is what to do about a setting that policies cannot be told.
func mend(r *engine.Requirement) string {
	if r.Fix != "" {
		return r.Fix
	}
	return "mend it, or remove it, at which policies take " + wish(r.Default)
}

// verb is what a value must do with what a policy wants.
func verb(value any) string {
	if _, list := value.([]any); list {
		return "have"
	}
	return "be"
}

// wish is a value that a policy wants.
func wish(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return shown(value)
	}
	return short(string(raw))
}
