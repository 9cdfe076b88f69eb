// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"net/mail"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// exampleTime is when the examples are recorded: some minutes past noon in Berlin.
var exampleTime = time.Date(2026, 11, 22, 11, 14, 3, 0, time.UTC)

// example is an example in both languages.
type example struct {
	kind    v1alpha1.NoticeKind
	variant string
	subject v1alpha1.ObjectReference
	// deadline is zero for none.
	deadline time.Time
	inputs   map[string]string
	carried  []example
}

// Examples returns requests of every kind and variant in German and English. Their Notices are
// named <kind>-<variant>.<language>.
func Examples() (requests []ComposeRequest) {
	for _, e := range exampleList() {
		for _, language := range []v1alpha1.Language{v1alpha1.LanguageGerman, v1alpha1.LanguageEnglish} {
			l := ComposeRequest{
				Notice: e.newNotice(language), Sequence: 2,
				From: mail.Address{Name: "Sluice", Address: "sluice@gpu.example.org"}, ReplyTo: "helpdesk@example.org", Domain: "gpu.example.org",
				Canceled: e.variant == "exempt" || e.variant == "held",
			}
			for _, c := range e.carried {
				l.Carried = append(l.Carried, c.newNotice(language))
			}
			requests = append(requests, l)
		}
	}
	return requests
}

func (e example) newNotice(language v1alpha1.Language) *v1alpha1.Notice {
	name := strings.ToLower(string(e.kind)) + "-" + e.variant + "." + string(language)
	n := &v1alpha1.Notice{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(exampleTime)},
		Spec: v1alpha1.NoticeSpec{
			Recipient: v1alpha1.NoticeRecipient{
				Contact:  v1alpha1.Contact{Name: "Anna Müller", Email: "anna.mueller@example.org"},
				Language: language, TimeZone: "Europe/Berlin",
			},
			Kind: e.kind, DueAt: metav1.NewTime(exampleTime.Add(-3 * time.Second)), Inputs: e.inputs,
		},
	}
	if e.kind == v1alpha1.NoticeDigest {
		date := period.DateOf(exampleTime, time.UTC)
		n.Spec.Date = &date
	}
	if !kindsWithoutSubject[e.kind] {
		subject := e.subject
		n.Spec.Subject = &subject
	}
	if !e.deadline.IsZero() {
		n.Spec.Deadline = &metav1.Time{Time: e.deadline}
	}
	return n
}

func exampleObject(apiVersion, kind, namespace, name string) v1alpha1.ObjectReference {
	return v1alpha1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}
}

// withInputs returns the inputs with more added.
func withInputs(base map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for k, v := range base {
		all[k] = v
	}
	for i := 0; i+1 < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// exampleMidnight returns the end of a day in Berlin's winter, days after the examples.
func exampleMidnight(days int) time.Time {
	return time.Date(2026, 11, 22+days, 23, 0, 0, 0, time.UTC)
}

// exampleRenewalEnd is the end of a day in Berlin's summer.
var exampleRenewalEnd = time.Date(2027, 5, 31, 22, 0, 0, 0, time.UTC)

func formatTimestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// exampleList holds an example of each variant.
func exampleList() []example {
	job := exampleObject("batch/v1", "Job", "thesis-mueller", "training")
	notebook := exampleObject("kubeflow.org/v1", "Notebook", "thesis-mueller", "scratch")
	serve := exampleObject("apps/v1", "Deployment", "thesis-mueller", "serve")
	pod := exampleObject("v1", "Pod", "thesis-mueller", "debug")
	project := exampleObject("sluice.dev/v1alpha1", "Project", "", "thesis-mueller")
	base := map[string]string{InputProject: "thesis-mueller", InputDepartment: "h2-students"}
	train := withInputs(
		base, InputType, "train", InputCreatedBy, "anna.mueller@example.org", InputAccumulatedSeconds, "86402", InputLimit, "48h",
	)
	idle := withInputs(
		base, InputType, "interactive", InputCreatedBy, "anna.mueller@example.org", InputAccumulatedSeconds, "11520", InputLimit, "48h",
		InputIdleTimeout, "2h",
	)
	farm := exampleObject("example.org/v1", "Farm", "thesis-mueller", "farm")
	unstoppable := func(variant, cause string, subject v1alpha1.ObjectReference) example {
		inputs := withInputs(train, InputCause, cause, InputPods, subject.Name+"-0, "+subject.Name+"-1")
		return example{kind: v1alpha1.NoticeWorkloadUnstoppable, variant: variant, subject: subject, inputs: inputs}
	}
	owned, contacted := exampleRecipientInputs(base)

	return slices.Concat([]example{
		{
			kind: v1alpha1.NoticeWorkloadEnding, variant: "job", subject: job, deadline: exampleTime.Add(24*time.Hour - 3*time.Second),
			inputs: withInputs(train, InputGPUs, "2", InputNodePool, "dgx-h100"),
		},
		{kind: v1alpha1.NoticeWorkloadEnding, variant: "pod", subject: pod, deadline: exampleTime.Add(30 * time.Minute), inputs: train},
		{kind: v1alpha1.NoticeWorkloadIdle, variant: "notebook", subject: notebook, deadline: exampleTime.Add(time.Hour), inputs: idle},
		{
			kind: v1alpha1.NoticeWorkloadIdle, variant: "starting", subject: job, deadline: exampleTime.Add(15 * time.Minute),
			inputs: withInputs(train, InputAccumulatedSeconds, "0", InputCause, string(v1alpha1.EndStartTimeout), InputStartTimeout, "30m"),
		},
		{
			kind: v1alpha1.NoticeWorkloadStopped, variant: "limit", subject: job,
			inputs: withInputs(
				train, InputCause, string(v1alpha1.EndMaxRuntime), InputUntil, formatTimestamp(exampleTime.Add(time.Hour)), InputAccumulatedSeconds,
				"172800",
			),
		},
		{
			kind: v1alpha1.NoticeWorkloadStopped, variant: "run", subject: exampleObject("batch/v1", "Job", "thesis-mueller", "nightly-29386800"),
			inputs: withInputs(
				train, InputCause, string(v1alpha1.EndMaxRuntime), InputUntil, formatTimestamp(exampleTime.Add(time.Hour)), InputAccumulatedSeconds,
				"172800", InputCronJob, "nightly",
			),
		},
		{
			kind: v1alpha1.NoticeWorkloadStopped, variant: "idle", subject: notebook,
			inputs: withInputs(idle, InputCause, string(v1alpha1.EndIdle)),
		},
		{
			kind: v1alpha1.NoticeWorkloadStopped, variant: "starttimeout", subject: job,
			inputs: withInputs(train, InputAccumulatedSeconds, "0", InputCause, string(v1alpha1.EndStartTimeout), InputStartTimeout, "30m"),
		},
		{
			kind: v1alpha1.NoticeWorkloadStopped, variant: "suspended", subject: serve,
			inputs: withInputs(train, InputCause, string(v1alpha1.EndProjectSuspended)),
		},
		{
			kind: v1alpha1.NoticeWorkloadStopped, variant: "projectdeleted", subject: job,
			inputs: withInputs(train, InputCause, string(v1alpha1.EndProjectDeleted)),
		},
		{
			kind: v1alpha1.NoticeWorkloadStopped, variant: "shareexceeded", subject: pod,
			inputs: withInputs(train, InputCause, string(v1alpha1.EndShareExceeded)),
		},
		{
			kind: v1alpha1.NoticeWorkloadStopped, variant: "preempted", subject: job,
			inputs: withInputs(train, InputCause, string(v1alpha1.EndPreempted)),
		},
		unstoppable("noeffect", CauseStopWithoutEffect, job), unstoppable("restarted", CauseRestartedAfterStop, serve),
		unstoppable("forbidden", "Forbidden", farm), unstoppable("unknown", "UnknownKind", farm),
		{
			kind: v1alpha1.NoticeShareExceeded, variant: "warned", subject: pod,
			inputs: withInputs(base, InputNode, "dgx-1", InputGPU, "3", InputMemoryMiB, "30720", InputShareMiB, "20480"),
		},
		{
			kind: v1alpha1.NoticeShareExceeded, variant: "deadline", subject: pod, deadline: exampleTime.Add(15 * time.Minute),
			inputs: withInputs(base, InputNode, "dgx-1", InputMemoryMiB, "30720", InputShareMiB, "20480"),
		},
		{
			kind: v1alpha1.NoticePreemption, variant: "room", subject: pod, deadline: exampleTime.Add(5 * time.Minute),
			inputs: withInputs(base, InputType, "train", InputGPUs, "2", InputNodePool, "dgx-h100"),
		},
		{
			kind: v1alpha1.NoticeQuotaThreshold, variant: "ninety", subject: project,
			inputs: withInputs(base, InputNodePool, "dgx-h100", InputPercent, "90", InputAllocated, "3600m", InputLimit, "4"),
		},
		{kind: v1alpha1.NoticeTest, variant: "requested"},
		{kind: v1alpha1.NoticeDigest, variant: "two", carried: []example{
			{
				kind: v1alpha1.NoticeProjectConfirm, variant: "carried",
				subject: exampleObject("sluice.dev/v1alpha1", "Project", "", "protein-folding"), deadline: exampleMidnight(30),
				inputs: withInputs(owned, InputProject, "protein-folding", InputDepartment, "h2-research"),
			},
			{
				kind: v1alpha1.NoticeProjectExpiring, variant: "carried", subject: project, deadline: exampleMidnight(6),
				inputs: owned,
			},
		}},
		{kind: v1alpha1.NoticeDigest, variant: "contact", carried: []example{
			{kind: v1alpha1.NoticeProjectExpiring, variant: "carried", subject: project, deadline: exampleMidnight(1), inputs: contacted},
		}},
		{kind: v1alpha1.NoticeDigest, variant: "one", carried: []example{
			{
				kind: v1alpha1.NoticeProjectExpiring, variant: "carried", subject: project, deadline: exampleMidnight(6),
				inputs: owned,
			},
		}},
	}, projectExamples(project, base), summaryExamples(), requestExamples(base))
}
