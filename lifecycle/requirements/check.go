// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"strings"

	"sluice.dev/policies/engine"
)

const (
	// maxSettings is how many settings a pool may have, maxValue how long one may be,
	// in bytes.
	maxSettings = 32
	maxValue    = 1024
)

// Findings are what was found of what policies require.
type Findings struct {
	// Missing is what is not as it must be, in the order of the requirements.
	Missing []Missing
	// Settings are what policies want to know, by the names that they gave it; nil
	// where they want to know nothing.
	Settings map[string]string
}

// Missing is a requirement that is not met.
type Missing struct {
	// Policy is whose requirement it is.
	Policy string
	// What says what is missing, or what is wrong.
	What string
	// Fix is what to do.
	Fix string
}

// Sentences say what is missing, each with what to do: once for all that has one
// cure.
func (f Findings) Sentences() []string {
	type cure struct{ policy, fix string }
	var order []cure
	lacks := make(map[cure][]string)
	for _, missing := range f.Missing {
		c := cure{missing.Policy, missing.Fix}
		if lacks[c] == nil {
			order = append(order, c)
		}
		lacks[c] = append(lacks[c], missing.What)
	}
	sentences := make([]string, 0, len(order))
	for _, c := range order {
		sentences = append(sentences, strings.Join(lacks[c], ", ")+": "+c.fix+" (policy "+c.policy+")")
	}
	return sentences
}

// Check looks at what policies require. The settings in known are those of the
// time before: where one cannot be looked at, it stays what it was. An error
// means that the API server could not be asked; nothing is known then.
func (l *Look) Check(ctx context.Context, requires []engine.Requirement, known map[string]string) (Findings, error) {
	var found Findings
	givenBy := make(map[string]string)
	for i := range requires {
		r := &requires[i]
		var wrong *Missing
		var err error
		switch {
		case r.CRD != "":
			wrong, err = l.definition(ctx, r)
		case r.As == "":
			wrong, err = l.setting(ctx, r)
		case givenBy[r.As] != "" && givenBy[r.As] != r.Policy:
			wrong = fault(r, "the setting "+r.As+" is what policy "+givenBy[r.As]+" calls it too", "choose another name in one of the two")
		case len(found.Settings) == maxSettings:
			wrong = fault(r, "the policies want to know more than 32 settings", "leave out "+r.As)
		default:
			givenBy[r.As] = r.Policy
			if found.Settings == nil {
				found.Settings = make(map[string]string)
			}
			found.Settings[r.As], wrong, err = l.wanted(ctx, r, known)
		}
		if err != nil {
			return Findings{}, err
		}
		if wrong != nil {
			found.Missing = append(found.Missing, *wrong)
		}
	}
	return found, nil
}

func fault(r *engine.Requirement, what, fix string) *Missing {
	return &Missing{Policy: r.Policy, What: what, Fix: fix}
}
