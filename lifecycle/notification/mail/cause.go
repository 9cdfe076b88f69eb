// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"strconv"

	"sluice.dev/api/v1alpha1"
)

// The codes that [InputBecause] may have besides a v1alpha1.EndReason, and the inputs
// that have their figures. What is none of these is a sentence that somebody recorded,
// and is said as it stands.
const (
	// CauseNoSelfService: the department grants nothing by itself.
	CauseNoSelfService = "NothingGranted"
	// CauseExtensionTooLong: it grants at most [InputEach] at once by itself.
	CauseExtensionTooLong = "TooLong"
	// CauseSelfServiceLimitReached: of [InputAllowed] within [InputWindow], [InputUsed] were granted.
	CauseSelfServiceLimitReached = "LimitReached"
	// CauseWorkloadNotFound: there is no such workload any more.
	CauseWorkloadNotFound = "WorkloadGone"
	// CauseExtensionLimitReached: it was extended [InputUsed] times, which is the most.
	CauseExtensionLimitReached = "ExtendedTooOften"
	// CauseQuotaReclaimed: of a Preemption, its GPUs are guaranteed to others.
	CauseQuotaReclaimed = "Reclaimed"
	// CauseHigherPriority: of a Preemption, something more urgent needs its GPUs.
	CauseHigherPriority = "HigherPriority"
)

// localizedCause says in words why: of a code that is known in the recipient's language.
func (p *TemplateData) localizedCause() string {
	german := p.Language == string(v1alpha1.LanguageGerman)
	say := func(de, en string, figures ...any) string {
		if german {
			en = de
		}
		return fmt.Sprintf(en, figures...)
	}
	used, usedKnown := p.countInput(InputUsed)
	switch code := p.In[InputCause]; code {
	case CauseNoSelfService:
		return say("die Abteilung entscheidet über jeden Antrag einzeln", "your department decides on each request")
	case CauseExtensionTooLong:
		if each := p.Long[InputMaxPerRequest]; each != nil {
			return say("ohne Einzelentscheidung gewährt die Abteilung höchstens %s auf einmal", "without a decision your department grants at most %s at once", each.Text)
		}
		return say("so viel Zeit auf einmal gewährt die Abteilung nicht ohne Einzelentscheidung", "your department does not grant that much time at once without a decision")
	case CauseSelfServiceLimitReached:
		allowed, window := p.selfServiceLimit()
		if !usedKnown || allowed == "" {
			return say("die Verlängerungen ohne Einzelentscheidung sind ausgeschöpft", "the extensions without a decision are used up")
		}
		return say("ohne Einzelentscheidung gewährt die Abteilung %s innerhalb von %s; davon genutzt: %d",
			"without a decision your department grants %s within %s; used so far: %d", allowed, window, used)
	case CauseWorkloadNotFound:
		return say("der Workload existiert nicht mehr", "the workload no longer exists")
	case CauseExtensionLimitReached:
		if !usedKnown {
			return say("der Workload kann nicht noch einmal verlängert werden", "the workload cannot be extended again")
		}
		return say("der Workload wurde bereits %d-mal verlängert; mehr ist nicht möglich", "the workload was extended %d times, which is the maximum", used)
	case CauseQuotaReclaimed, CauseHigherPriority:
		return "" // the text of the kind says it
	default:
		return code
	}
}

// selfServiceLimit is how many extensions a department grants by itself, and within which time;
// empty where the Notice does not say.
func (p *TemplateData) selfServiceLimit() (allowed, window string) {
	n, known := p.countInput(InputAllowed)
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

// selfServiceUsage is which of those that a department grants by itself one is: "1 of 2
// within 30 days".
func (p *TemplateData) selfServiceUsage() string {
	used, usedKnown := p.countInput(InputUsed)
	allowed, allowedKnown := p.countInput(InputAllowed)
	within := p.Long[InputWindow]
	switch {
	case !usedKnown || !allowedKnown || within == nil:
		return ""
	case p.Language == string(v1alpha1.LanguageGerman):
		return fmt.Sprintf("Verlängerung %d von %d innerhalb von %s", used, allowed, within.Dative)
	}
	return fmt.Sprintf("%d of %d within %s", used, allowed, within.Text)
}

// countInput is an input that is a whole number below a million.
func (p *TemplateData) countInput(key string) (int, bool) {
	n, err := strconv.ParseUint(p.In[key], 10, 32)
	if err != nil || n >= 1_000_000 {
		return 0, false
	}
	return int(n), true
}
