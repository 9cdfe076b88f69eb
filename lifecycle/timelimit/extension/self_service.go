// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/timelimit/controller"
)

// What holds where a department says nothing, as its schema has it.
var (
	defaultMaxLength = period.MustParseDuration("24h")
	defaultWindow    = period.MustParseDuration("30d")
)

// selfServiceLimits are what a department grants by itself: how many, of at most which length,
// within which time.
type selfServiceLimits struct {
	count             int
	maxLength, window period.Duration
}

func selfServiceLimitsOf(department *v1alpha1.Department) selfServiceLimits {
	said := department.Spec.Extensions
	t := selfServiceLimits{count: int(said.SelfService), maxLength: defaultMaxLength, window: defaultWindow}
	if said.MaxDuration != nil {
		t.maxLength = *said.MaxDuration
	}
	if said.Window != nil {
		t.window = *said.Window
	}
	return t
}

// selfServiceResult is what the terms say to an Extension, and why.
type selfServiceResult struct {
	granted     bool
	explanation explanation
}

// evaluate is the department's to an undecided Extension for the clock's workload,
// where all are the Extensions of the namespace.
func (t selfServiceLimits) evaluate(asked *v1alpha1.Extension, all []v1alpha1.Extension, clock *v1alpha1.WorkloadClock, now time.Time) selfServiceResult {
	switch {
	case t.count == 0:
		return selfServiceResult{explanation: explanation{code: mail.CauseNoSelfService}}
	case !t.allowsLength(asked):
		return selfServiceResult{explanation: explanation{code: mail.CauseExtensionTooLong, maxLength: t.maxLength}}
	}
	used := t.countGranted(asked, all, clock, now)
	if used >= t.count {
		return selfServiceResult{explanation: explanation{code: mail.CauseSelfServiceLimitReached, used: used, allowed: t.count, window: t.window}}
	}
	return selfServiceResult{granted: true, explanation: explanation{code: codeSelfService, used: used + 1, allowed: t.count, window: t.window}}
}

func (t selfServiceLimits) allowsLength(e *v1alpha1.Extension) bool {
	return e.Spec.By.Length() <= t.maxLength.Length()
}

// countGranted is how many were granted within the window, or are about to be. A workload
// may have had them before its time began anew, and then only the Extensions tell;
// an Extension may have been deleted since, and then only the clock does.
func (t selfServiceLimits) countGranted(asked *v1alpha1.Extension, all []v1alpha1.Extension, clock *v1alpha1.WorkloadClock, now time.Time) int {
	recent := func(at *metav1.Time) bool { return at == nil || at.Add(t.window.Length()).After(now) }
	counted := map[string]bool{}
	for i := range clock.Status.Extensions {
		if given := &clock.Status.Extensions[i]; given.SelfService && recent(&given.At) {
			counted[given.Name] = true
		}
	}
	for i := range all {
		e := &all[i]
		if e.Name == asked.Name || !controller.Extends(e, clock) {
			continue
		}
		granted := e.Status.Decision == v1alpha1.ExtensionApproved && e.Status.DecidedBy == "" && recent(e.Status.DecidedAt)
		comesFirst := e.Status.Decision == "" && !awaitsDecision(e) && t.allowsLength(e) && wasRequestedBefore(e, asked)
		if granted || comesFirst {
			counted[e.Name] = true
		}
	}
	return len(counted)
}

// wasRequestedBefore tells whether a was asked for before b: the names decide within a second.
func wasRequestedBefore(a, b *v1alpha1.Extension) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// awaitsDecision tells whether somebody was asked to decide.
func awaitsDecision(e *v1alpha1.Extension) bool {
	return meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionAnnounced) != nil
}

// codeSelfService is the code of what the department grants by itself. Mails say it without
// one.
const codeSelfService = "SelfService"

// explanation is why an Extension was answered as it was: a code, and the figures that it
// has. Statuses and events have it as a sentence, and Notices as inputs, which mails say
// in the recipient's language.
type explanation struct {
	code              string
	used, allowed     int
	maxLength, window period.Duration
}

// String is the sentence.
func (b explanation) String() string {
	switch b.code {
	case mail.CauseNoSelfService:
		return "the department grants nothing by itself"
	case mail.CauseExtensionTooLong:
		return fmt.Sprintf("the department grants at most %s at once by itself", b.maxLength)
	case mail.CauseSelfServiceLimitReached:
		return fmt.Sprintf("the department grants %d within %s by itself, and %d were", b.allowed, b.window, b.used)
	case mail.CauseWorkloadNotFound:
		return "there is no such workload any more"
	case mail.CauseExtensionLimitReached:
		return fmt.Sprintf("it was extended %d times already, which is the most", b.used)
	case codeSelfService:
		return fmt.Sprintf("granted by the department's self-service: %d of %d within %s", b.used, b.allowed, b.window)
	}
	return b.code
}

// noticeInputs are a Notice's.
func (b explanation) noticeInputs() map[string]string {
	inputs := map[string]string{}
	if b.code != codeSelfService {
		inputs[mail.InputCause] = b.code
	}
	for key, n := range map[string]int{mail.InputUsed: b.used, mail.InputAllowed: b.allowed} {
		if n > 0 {
			inputs[key] = strconv.Itoa(n)
		}
	}
	for key, length := range map[string]period.Duration{mail.InputMaxPerRequest: b.maxLength, mail.InputWindow: b.window} {
		if !length.IsZero() {
			inputs[key] = length.String()
		}
	}
	return inputs
}

// explanationPatterns are those whose figures are read back from a status.
var explanationPatterns = map[string]*regexp.Regexp{
	mail.CauseNoSelfService:           regexp.MustCompile(`^the department grants nothing by itself$`),
	mail.CauseExtensionTooLong:        regexp.MustCompile(`^the department grants at most (?P<each>\S+) at once by itself$`),
	mail.CauseSelfServiceLimitReached: regexp.MustCompile(`^the department grants (?P<allowed>\d+) within (?P<window>\S+) by itself, and (?P<used>\d+) were$`),
	mail.CauseWorkloadNotFound:        regexp.MustCompile(`^there is no such workload any more$`),
	mail.CauseExtensionLimitReached:   regexp.MustCompile(`^it was extended (?P<used>\d+) times already, which is the most$`),
	codeSelfService:                   regexp.MustCompile(`^granted by the department's self-service: (?P<used>\d+) of (?P<allowed>\d+) within (?P<window>\S+)$`),
}

// parseExplanation reads a sentence of [because]; false of any other.
func parseExplanation(sentence string) (explanation, bool) {
	for code, form := range explanationPatterns {
		found := form.FindStringSubmatch(sentence)
		if found == nil {
			continue
		}
		b := explanation{code: code}
		for i, name := range form.SubexpNames() {
			var err error
			switch name {
			case "used":
				b.used, err = strconv.Atoi(found[i])
			case "allowed":
				b.allowed, err = strconv.Atoi(found[i])
			case "each":
				b.maxLength, err = period.ParseDuration(found[i])
			case "window":
				b.window, err = period.ParseDuration(found[i])
			}
			if err != nil {
				return explanation{}, false
			}
		}
		return b, b.String() == sentence
	}
	return explanation{}, false
}
