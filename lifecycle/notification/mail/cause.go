// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"fmt"
	"strconv"

	"sluice.dev/api/v1alpha1"
)

// Codes of [InputCause] besides v1alpha1.EndReason, and the inputs with their numbers. Any other
// value is shown unchanged.
const (
	// CauseNoSelfService: the department has no self-service.
	CauseNoSelfService = "NoSelfService"
	// CauseExtensionTooLong: self-service grants at most [InputMaxDuration] at once.
	CauseExtensionTooLong = "ExtensionTooLong"
	// CauseSelfServiceLimitReached: of [InputAllowed] within [InputWindow], [InputUsed] were granted.
	CauseSelfServiceLimitReached = "SelfServiceLimitReached"
	// CauseWorkloadNotFound: the workload no longer exists.
	CauseWorkloadNotFound = "WorkloadNotFound"
	// CauseExtensionLimitReached: it was extended [InputUsed] times, the maximum.
	CauseExtensionLimitReached = "ExtensionLimitReached"
	// CauseNotRenewable: a project that does not expire, or was renewed meanwhile. CauseRenewalPending:
	// another renewal was requested before. CauseRequesterNotOwner: no owner requested the renewal.
	CauseNotRenewable      = "NotRenewable"
	CauseRenewalPending    = "RenewalPending"
	CauseRequesterNotOwner = "RequesterNotOwner"
	// CauseQuotaReclaimed: a Preemption for the guaranteed quota of another project.
	CauseQuotaReclaimed = "QuotaReclaimed"
	// CauseStopWithoutEffect: a WorkloadUnstoppable whose pods run on after all attempts.
	CauseStopWithoutEffect = "StopWithoutEffect"
	// CauseRestartedAfterStop: a WorkloadUnstoppable that was started again each time. Others are
	// Forbidden (Sluice lacks a permission) and UnknownKind.
	CauseRestartedAfterStop = "RestartedAfterStop"
	// CauseVolumeClaims, CauseNamespaceAdopted, CauseNamespaceUnmarked: a ProjectDeleted whose
	// namespace stays because it holds volumes, because it is older than the project, or because its
	// annotation sluice.dev/created-for was removed.
	CauseVolumeClaims      = "VolumeClaims"
	CauseNamespaceAdopted  = "NamespaceAdopted"
	CauseNamespaceUnmarked = "NamespaceUnmarked"
	// CauseUnconfirmed: a ProjectDeletion of a project that no owner confirmed. CauseDeletionApproved: its
	// deletion was approved. CauseDeletionDismissed: its deletion was dismissed.
	CauseUnconfirmed       = "Unconfirmed"
	CauseDeletionApproved  = "DeletionApproved"
	CauseDeletionDismissed = "DeletionDismissed"
	// CauseHigherPriority: a Preemption for a workload with higher priority.
	CauseHigherPriority = "HigherPriority"
)

// localizedCause returns the cause in the recipient's language, or the value of an unknown code.
func (p *TemplateData) localizedCause() string {
	german := p.Language == string(v1alpha1.LanguageGerman)
	localize := func(de, en string, figures ...any) string {
		if german {
			en = de
		}
		return fmt.Sprintf(en, figures...)
	}
	used, usedKnown := p.countInput(InputUsed)
	switch code := p.In[InputCause]; code {
	case CauseNoSelfService:
		return localize("Die Abteilung entscheidet über jeden Antrag einzeln", "your department decides on each request")
	case CauseExtensionTooLong:
		if longest := p.Long[InputMaxDuration]; longest != nil {
			return localize(
				"Ohne Einzelentscheidung gewährt die Abteilung höchstens %s auf einmal",
				"without a decision your department grants at most %s at once", longest.Text,
			)
		}
		return localize(
			"So viel Zeit auf einmal gewährt die Abteilung nicht ohne Einzelentscheidung",
			"your department does not grant that much time at once without a decision",
		)
	case CauseSelfServiceLimitReached:
		allowed, window := p.selfServiceLimit()
		switch {
		case !usedKnown || allowed == "" || window == "" && !p.Renewal:
			return localize("Die Verlängerungen ohne Einzelentscheidung sind ausgeschöpft", "the extensions without a decision are used up")
		case p.Renewal:
			return localize("Ohne Einzelentscheidung gewährt die Abteilung einem Projekt %s; davon genutzt: %d",
				"without a decision your department grants a project %s; used so far: %d", allowed, used)
		}
		return localize("Ohne Einzelentscheidung gewährt die Abteilung %s innerhalb von %s; davon genutzt: %d",
			"without a decision your department grants %s within %s; used so far: %d", allowed, window, used)
	case CauseWorkloadNotFound:
		return localize("Der Workload existiert nicht mehr", "the workload no longer exists")
	case CauseExtensionLimitReached:
		if !usedKnown || used == 0 {
			return localize("Der Workload kann nicht noch einmal verlängert werden", "the workload cannot be extended again")
		}
		times := strconv.Itoa(used)
		return localize(
			"Der Workload wurde bereits "+countPhrase(times, "", "einmal", "%s-mal")+" verlängert; mehr ist nicht möglich",
			"the workload was extended "+countPhrase(times, "", "once", "%s times")+", which is the maximum",
		)
	case CauseNotRenewable:
		return localize("Das Projekt läuft nicht ab oder wurde inzwischen bereits verlängert",
			"the project does not expire, or was renewed meanwhile")
	case CauseRenewalPending:
		return localize("Für das Projekt wurde zuvor schon eine Verlängerung beantragt", "another renewal of the project was requested before")
	case CauseRequesterNotOwner:
		return localize("Nur wer für das Projekt zuständig ist, kann es verlängern", "only an owner of the project can renew it")
	case CauseQuotaReclaimed, CauseHigherPriority, CauseVolumeClaims, CauseNamespaceAdopted, CauseNamespaceUnmarked:
		return "" // the text of the kind covers it
	default:
		return code
	}
}

// selfServiceLimit returns the number of self-service extensions and their window; empty if the
// Notice lacks them.
func (p *TemplateData) selfServiceLimit() (allowed, window string) {
	n, known := p.countInput(InputAllowed)
	if !known {
		return "", ""
	}
	within := p.Long[InputWindow]
	if within == nil {
		within = &LocalizedDuration{}
	}
	switch count := strconv.Itoa(n); {
	case p.Language == string(v1alpha1.LanguageGerman):
		return countPhrase(count, "keine Verlängerungen", "eine Verlängerung", "%s Verlängerungen"), within.Dative
	case p.Renewal:
		return countPhrase(count, "no renewals", "1 renewal", "%s renewals"), within.Text
	default:
		return countPhrase(count, "no extensions", "1 extension", "%s extensions"), within.Text
	}
}

// selfServiceUsage returns the place of a self-service extension: "1 of 2 within 30 days".
func (p *TemplateData) selfServiceUsage() string {
	used, usedKnown := p.countInput(InputUsed)
	allowed, allowedKnown := p.countInput(InputAllowed)
	within := p.Long[InputWindow]
	switch {
	case !usedKnown || !allowedKnown || used == 0 || within == nil && !p.Renewal:
		return ""
	case within == nil && p.Language == string(v1alpha1.LanguageGerman):
		return fmt.Sprintf("Verlängerung %d von %d", used, allowed)
	case within == nil:
		return fmt.Sprintf("%d of %d", used, allowed)
	case p.Language == string(v1alpha1.LanguageGerman):
		return fmt.Sprintf("Verlängerung %d von %d innerhalb von %s", used, allowed, within.Dative)
	}
	return fmt.Sprintf("%d of %d within %s", used, allowed, within.Text)
}

// countInput parses an input as a whole number below a million.
func (p *TemplateData) countInput(key string) (int, bool) {
	n, err := strconv.ParseUint(p.In[key], 10, 32)
	if err != nil || n >= 1_000_000 {
		return 0, false
	}
	return int(n), true
}
