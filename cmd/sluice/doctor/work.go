// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/timelimit/controller"
)

// checkStopLimiter reports departments whose workloads are not stopped at changed limits.
func checkStopLimiter(o *Observation) (out outcome) {
	if reason := firstUnread(o.StopLimiter); reason != "" {
		return skip("%s", reason)
	}
	if o.StopLimiter.Value != nil {
		for _, department := range controller.StopLimiterDepartments(o.StopLimiter.Value) {
			state := controller.ParseStopLimiterState(o.StopLimiter.Value, department)
			if state.IsEngaged() && !state.IsReleased(o.PolicyNow) {
				out.add(Warning, "Department "+department, fmt.Sprintf(
					"the stop limiter is engaged since %s: %d of %d running workloads were to be stopped within an hour at a shortened limit",
					formatMinute(state.EngagedAt), state.Due, state.Running),
					"correct the limit, or stop them nevertheless: sluice brake release "+department+" --for 2h")
			}
		}
	}
	out.ok = "the stop limiter is not engaged"
	return out
}

// checkPause reports a pause in force.
func checkPause(o *Observation) (out outcome) {
	if reason := firstUnread(o.Parameters); reason != "" {
		return skip("%s", reason)
	}
	if parameters := o.Parameters.Value; parameters != nil && parameters.Status.Pause.IsInForce(o.PolicyNow) {
		pause := parameters.Status.Pause
		out.add(Warning, "AdmissionParameters "+parameters.Name, fmt.Sprintf(
			"%s paused Sluice until %s (%s): denials of policies are warnings, and time limits, evictions and project expiry are held",
			pause.By, formatMinute(pause.Until.Time), pause.Reason), "repair the cause, then end the pause: sluice resume")
	}
	out.ok = "Sluice is not paused"
	return out
}

func formatMinute(at time.Time) string { return at.UTC().Format("2006-01-02 15:04 MST") }

// checkUnstoppable reports workloads that run although Sluice stopped them.
func checkUnstoppable(o *Observation) (out outcome) {
	if reason := firstUnread(o.Clocks); reason != "" {
		return skip("%s", reason)
	}
	for i := range o.Clocks.Value {
		clock := &o.Clocks.Value[i]
		if c := meta.FindStatusCondition(clock.Status.Conditions, v1alpha1.ConditionUnstoppable); c != nil && c.Status == metav1.ConditionTrue {
			root := clock.Spec.Root
			out.add(Warning, fmt.Sprintf("%s %s/%s", root.Kind, clock.Namespace, root.Name),
				fmt.Sprintf("it runs although Sluice stopped it (%s): %s", c.Reason, c.Message),
				"stop it by hand, or its controller that starts it again (docs/researcher/stopping.md)")
		}
	}
	out.ok = fmt.Sprintf("each of %d workloads with GPUs can be stopped", len(o.Clocks.Value))
	return out
}

// checkMail checks whether mail is set up and not paused.
func checkMail(o *Observation) (out outcome) {
	if reason := firstUnread(o.MailState); reason != "" {
		return skip("%s", reason)
	}
	state := outbox.MailState{}
	if o.MailState.Value != nil {
		state = outbox.ParseMailState(o.MailState.Value)
	}
	const test = "sluice notices test ADDRESS sends a test mail"
	switch {
	case state.Paused && state.FailedConfiguration != "":
		out.add(Error, mailObject, "lifecycle paused mail, since the mail server refuses its configuration: "+cmp.Or(state.Reason, "no reason"),
			"correct mail in lifecycle's configuration or the Secret; "+test)
	case state.Paused:
		out.add(Warning, mailObject, "mail is paused: "+cmp.Or(state.Reason, "no reason"), "sluice notices resume")
	case state.EnabledAt.IsZero():
		// Lifecycle records the time when it has the first mail to send.
		configured, known := configuresMail(o.LifecycleConfig.Value)
		if !known {
			return skip("no mail was sent yet, and lifecycle's configuration is in no ConfigMap that this command reads; %s", test)
		}
		if configured {
			out.ok = "a mail server is configured, and no mail was sent yet; " + test
			return out
		}
		out.add(Warning, "", "no mail server is configured: no warning is sent, and projects with a validity do not expire",
			"set mail in lifecycle's configuration (docs/platform/mail.md)")
	}
	out.ok = "mail is set up since " + formatMinute(state.EnabledAt) + " and is not paused; " + test
	return out
}

// configuresMail reports whether lifecycle's configuration has a mail server, and whether that is known.
func configuresMail(object *corev1.ConfigMap) (configured, known bool) {
	if object == nil {
		return false, false
	}
	var file struct {
		Mail map[string]any `json:"mail"`
	}
	if err := yaml.Unmarshal([]byte(object.Data[lifecycleName+".yaml"]), &file); err != nil || object.Data[lifecycleName+".yaml"] == "" {
		return false, false
	}
	return len(file.Mail) > 0, true
}

const mailObject = "ConfigMap " + systemNamespace + "/" + outbox.MailStateConfigMapName

// overdue is the time after which a notice that was not sent is late, in policy time.
const overdue = time.Hour

// checkNotices reports mail that the server refused, or that waits too long.
func checkNotices(o *Observation) (out outcome) {
	if reason := firstUnread(o.Notices); reason != "" {
		return skip("%s", reason)
	}
	var failed, retried, late []*v1alpha1.Notice
	for i := range o.Notices.Value {
		notice := &o.Notices.Value[i]
		switch notice.Status.Phase {
		case v1alpha1.NoticeFailed:
			failed = append(failed, notice)
		case v1alpha1.NoticePending, v1alpha1.NoticeSending, "":
			isLate := notice.Spec.Digest == "" && o.PolicyNow.Sub(notice.Spec.DueAt.Time) > overdue
			switch {
			case notice.Status.LastError != "":
				retried = append(retried, notice)
			case isLate:
				late = append(late, notice)
			}
		}
	}
	const list = "sluice notices list, then sluice notices show NAME"
	addNotices(&out, failed, "notices failed and are not sent again", list+"; correct the address or the server, then sluice notices resend NAME")
	addNotices(&out, retried, "notices wait after an error of the mail server", list+"; see the check mail")
	addNotices(&out, late, fmt.Sprintf("notices are due for more than %s and were not sent", overdue), "see the checks mail and lifecycle")
	out.ok = fmt.Sprintf("none of %d notices failed or waits after an error", len(o.Notices.Value))
	return out
}

func addNotices(out *outcome, notices []*v1alpha1.Notice, what, do string) {
	if len(notices) == 0 {
		return
	}
	slices.SortFunc(notices, func(a, b *v1alpha1.Notice) int {
		return cmp.Or(b.Spec.DueAt.Compare(a.Spec.DueAt.Time), cmp.Compare(a.Name, b.Name))
	})
	latest := notices[0]
	text := fmt.Sprintf("%d %s; the latest is %s", len(notices), what, latest.Name)
	if latest.Status.LastError != "" {
		text += ": " + latest.Status.LastError
	}
	out.add(Warning, "", text, do)
}
