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
	"k8s.io/apimachinery/pkg/util/sets"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/timelimit/controller"
)

// defaultWindow is the default of the department's schema.
var defaultWindow = period.MustParseDuration("30d")

// selfServiceLimits are the extensions that a department grants by itself: count extensions
// of at most maxLength within the window.
type selfServiceLimits struct {
	count             int
	maxLength, window period.Duration
}

func selfServiceLimitsOf(department *v1alpha1.Department) selfServiceLimits {
	terms := department.Spec.Extensions
	l := selfServiceLimits{count: int(terms.SelfService), maxLength: terms.LongestExtension(), window: defaultWindow}
	if terms.Window != nil {
		l.window = *terms.Window
	}
	return l
}

// evaluate reports whether self-service grants an undecided Extension, and why. all are the
// Extensions of the namespace.
func (l selfServiceLimits) evaluate(
	e *v1alpha1.Extension, all []v1alpha1.Extension, clock *v1alpha1.WorkloadClock, now time.Time,
) (granted bool, why explanation) {
	switch {
	case l.count == 0:
		return false, explanation{code: mail.CauseNoSelfService}
	case !l.allowsLength(e):
		return false, explanation{code: mail.CauseExtensionTooLong, maxLength: l.maxLength}
	}
	used := l.countGranted(e, all, clock, now)
	if used >= l.count {
		return false, explanation{code: mail.CauseSelfServiceLimitReached, used: used, allowed: l.count, window: l.window}
	}
	return true, explanation{code: codeSelfService, used: used + 1, allowed: l.count, window: l.window}
}

func (l selfServiceLimits) allowsLength(e *v1alpha1.Extension) bool {
	return e.Spec.By.Length() <= l.maxLength.Length()
}

// countGranted counts the self-service extensions within the window, including earlier
// requests that will be granted. It reads the clock, because an Extension can be deleted, and
// the Extensions, because the clock can be reset.
func (l selfServiceLimits) countGranted(e *v1alpha1.Extension, all []v1alpha1.Extension, clock *v1alpha1.WorkloadClock, now time.Time) int {
	inWindow := func(at *metav1.Time) bool { return at == nil || at.Add(l.window.Length()).After(now) }
	granted := sets.New[string]()
	for i := range clock.Status.Extensions {
		if recorded := &clock.Status.Extensions[i]; recorded.SelfService && inWindow(&recorded.At) {
			granted.Insert(recorded.Name)
		}
	}
	for i := range all {
		other := &all[i]
		if other.Name == e.Name || !controller.Extends(other, clock) {
			continue
		}
		s := &other.Status
		// What another user requested and the clock does not hold was for that user's workload of the same name.
		ofFormer := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionApplied) && clock.Status.CreatedBy != "" &&
			other.Annotations[v1alpha1.AnnotationCreatedBy] != clock.Status.CreatedBy
		approved := s.Decision == v1alpha1.ExtensionApproved && s.DecidedBy == "" && inWindow(s.DecidedAt) && !ofFormer
		comesFirst := s.Decision == "" && !awaitsDecision(other) && l.allowsLength(other) && wasRequestedBefore(other, e)
		if approved || comesFirst {
			granted.Insert(other.Name)
		}
	}
	return len(granted)
}

// wasRequestedBefore reports whether a was created before b. Within a second the name decides.
func wasRequestedBefore(a, b *v1alpha1.Extension) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// awaitsDecision reports whether a decision was requested from people.
func awaitsDecision(e *v1alpha1.Extension) bool {
	return meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionAnnounced) != nil
}

// codeSelfService is the code of an approval by self-service. Notices have no cause for it.
const codeSelfService = "SelfService"

// explanation is the reason of a decision: a code and its figures. Statuses and events hold
// it as a sentence, Notices as inputs that mails translate.
type explanation struct {
	code              string
	used, allowed     int
	maxLength, window period.Duration
}

// String returns the sentence.
func (x explanation) String() string {
	switch x.code {
	case mail.CauseNoSelfService:
		return "the department grants nothing by itself"
	case mail.CauseExtensionTooLong:
		return fmt.Sprintf("the department grants at most %s at once by itself", x.maxLength)
	case mail.CauseSelfServiceLimitReached:
		return fmt.Sprintf("the department grants %d%s by itself, and %d were granted", x.allowed, x.withinWindow(), x.used)
	case mail.CauseWorkloadNotFound:
		return "the workload does not exist any more"
	case mail.CauseExtensionLimitReached:
		return fmt.Sprintf("the workload was extended %d times, which is the limit", x.used)
	case mail.CauseNotRenewable:
		return "the project cannot be renewed now: it does not expire, or was renewed meanwhile"
	case mail.CauseRenewalPending:
		return "another renewal of the project was requested before"
	case mail.CauseRequesterNotOwner:
		return "only an owner of the project, or an administrator on behalf of an owner, renews it"
	case codeSelfService:
		if x.allowed == 0 { // without limit
			return "granted by the department's self-service"
		}
		return fmt.Sprintf("granted by the department's self-service: %d of %d%s", x.used, x.allowed, x.withinWindow())
	}
	return x.code
}

// withinWindow returns the window; empty for renewals, which are counted over the project's life.
func (x explanation) withinWindow() string {
	if x.window.IsZero() {
		return ""
	}
	return " within " + x.window.String()
}

// noticeInputs returns the inputs of a Notice.
func (x explanation) noticeInputs() map[string]string {
	inputs := map[string]string{}
	if x.code != codeSelfService {
		inputs[mail.InputCause] = x.code
	}
	for key, n := range map[string]int{mail.InputUsed: x.used, mail.InputAllowed: x.allowed} {
		if n > 0 {
			inputs[key] = strconv.Itoa(n)
		}
	}
	for key, length := range map[string]period.Duration{mail.InputMaxDuration: x.maxLength, mail.InputWindow: x.window} {
		if !length.IsZero() {
			inputs[key] = length.String()
		}
	}
	return inputs
}

// explanationPatterns match the sentences of String.
var explanationPatterns = map[string]*regexp.Regexp{
	mail.CauseNoSelfService:    exactly(mail.CauseNoSelfService),
	mail.CauseExtensionTooLong: regexp.MustCompile(`^the department grants at most (?P<maxLength>\S+) at once by itself$`),
	mail.CauseSelfServiceLimitReached: regexp.MustCompile(
		`^the department grants (?P<allowed>\d+)(?: within (?P<window>\S+))? by itself, and (?P<used>\d+) were granted$`),
	mail.CauseNotRenewable:          exactly(mail.CauseNotRenewable),
	mail.CauseRenewalPending:        exactly(mail.CauseRenewalPending),
	mail.CauseRequesterNotOwner:     exactly(mail.CauseRequesterNotOwner),
	mail.CauseWorkloadNotFound:      exactly(mail.CauseWorkloadNotFound),
	mail.CauseExtensionLimitReached: regexp.MustCompile(`^the workload was extended (?P<used>\d+) times, which is the limit$`),
	codeSelfService: regexp.MustCompile(
		`^granted by the department's self-service(?:: (?P<used>\d+) of (?P<allowed>\d+)(?: within (?P<window>\S+))?)?$`),
}

// exactly matches the sentence of a code without figures.
func exactly(code string) *regexp.Regexp {
	return regexp.MustCompile("^" + regexp.QuoteMeta(explanation{code: code}.String()) + "$")
}

// parseExplanation parses a sentence of String, and returns false for any other sentence.
func parseExplanation(sentence string) (explanation, bool) {
	for code, pattern := range explanationPatterns {
		match := pattern.FindStringSubmatch(sentence)
		if match == nil {
			continue
		}
		x := explanation{code: code}
		for i, name := range pattern.SubexpNames() {
			var err error
			if match[i] == "" {
				continue
			}
			switch name {
			case "used":
				x.used, err = strconv.Atoi(match[i])
			case "allowed":
				x.allowed, err = strconv.Atoi(match[i])
			case "maxLength":
				x.maxLength, err = period.ParseDuration(match[i])
			case "window":
				x.window, err = period.ParseDuration(match[i])
			}
			if err != nil {
				return explanation{}, false
			}
		}
		return x, x.String() == sentence
	}
	return explanation{}, false
}
