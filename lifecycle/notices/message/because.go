// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"strconv"

	"sluice.dev/api/v1alpha1"
)

// The codes that [InputBecause] may have besides a v1alpha1.EndReason, and the inputs
// that have their figures. What is none of these is a sentence that somebody recorded,
// and is said as it stands.
const (
	// BecauseNothingGranted: the department grants nothing by itself.
	BecauseNothingGranted = "NothingGranted"
	// BecauseTooLong: it grants at most [InputEach] at once by itself.
	BecauseTooLong = "TooLong"
	// BecauseLimitReached: of [InputAllowed] within [InputWindow], [InputUsed] were granted.
	BecauseLimitReached = "LimitReached"
	// BecauseWorkloadGone: there is no such workload any more.
	BecauseWorkloadGone = "WorkloadGone"
	// BecauseExtendedTooOften: it was extended [InputUsed] times, which is the most.
	BecauseExtendedTooOften = "ExtendedTooOften"
	// BecauseReclaimed: of a Preemption, its GPUs are guaranteed to others.
	BecauseReclaimed = "Reclaimed"
	// BecauseHigherPriority: of a Preemption, something more urgent needs its GPUs.
	BecauseHigherPriority = "HigherPriority"
)

// because says in words why: of a code that is known in the recipient's language.
func (p *Page) because() string {
	german := p.Language == string(v1alpha1.LanguageGerman)
	say := func(de, en string, figures ...any) string {
		if german {
			en = de
		}
		return fmt.Sprintf(en, figures...)
	}
	used, usedKnown := p.count(InputUsed)
	switch code := p.In[InputBecause]; code {
	case BecauseNothingGranted:
		return say("die Abteilung gewährt nichts von selbst", "the department grants nothing by itself")
	case BecauseTooLong:
		if each := p.Long[InputEach]; each != nil {
			return say("die Abteilung gewährt von selbst höchstens %s auf einmal", "the department grants at most %s at once by itself", each.Text)
		}
		return say("so viel auf einmal gewährt die Abteilung nicht von selbst", "the department does not grant so much at once by itself")
	case BecauseLimitReached:
		allowed, window := p.granted()
		if !usedKnown || allowed == "" {
			return say("was die Abteilung von selbst gewährt, ist aufgebraucht", "what the department grants by itself is used up")
		}
		return say("die Abteilung gewährt %s innerhalb von %s von selbst, und gewährt sind schon %d",
			"the department grants %s within %s by itself, and %d were granted already", allowed, window, used)
	case BecauseWorkloadGone:
		return say("den Workload gibt es nicht mehr", "there is no such workload any more")
	case BecauseExtendedTooOften:
		if !usedKnown {
			return say("öfter kann der Workload nicht verlängert werden", "it cannot be extended once more")
		}
		return say("der Workload wurde schon %d-mal verlängert, und öfter geht es nicht", "it was extended %d times already, which is the most", used)
	case BecauseReclaimed, BecauseHigherPriority:
		return "" // the text of the kind says it
	default:
		return code
	}
}

// granted is how many extensions a department grants by itself, and within which time;
// empty where the Notice does not say.
func (p *Page) granted() (allowed, window string) {
	n, known := p.count(InputAllowed)
	within := p.Long[InputWindow]
	if !known || within == nil {
		return "", ""
	}
	words := [...]string{"extension", "extensions"}
	if p.Language == string(v1alpha1.LanguageGerman) {
		words = [...]string{"Verlängerung", "Verlängerungen"}
	}
	if n == 1 {
		return "1 " + words[0], within.Dative
	}
	return strconv.Itoa(n) + " " + words[1], within.Dative
}

// selfService is which of those that a department grants by itself one is: "1 of 2
// within 30 days".
func (p *Page) selfService() string {
	used, usedKnown := p.count(InputUsed)
	allowed, allowedKnown := p.count(InputAllowed)
	within := p.Long[InputWindow]
	switch {
	case !usedKnown || !allowedKnown || within == nil:
		return ""
	case p.Language == string(v1alpha1.LanguageGerman):
		return fmt.Sprintf("die %d. von %d innerhalb von %s", used, allowed, within.Dative)
	}
	return fmt.Sprintf("%d of %d within %s", used, allowed, within.Text)
}

// count is an input that is a whole number below a million.
func (p *Page) count(key string) (int, bool) {
	n, err := strconv.ParseUint(p.In[key], 10, 32)
	if err != nil || n >= 1_000_000 {
		return 0, false
	}
	return int(n), true
}
