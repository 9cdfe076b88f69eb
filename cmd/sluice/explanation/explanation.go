// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explanation says in plain words why a workload waits, was refused, stopped or
// preempted, or when it ends, and what its user can do about it.
//
// Its only function, [Explain], is pure: a caller reads the facts with the rights of the user.
// The first rule that applies gives the answer, so a user reads one reason and not ten.
package explanation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
)

// State is what happens to a workload, in one word.
type State string

// The states.
const (
	StateMissing   State = "Missing"
	StateWaiting   State = "Waiting"
	StateRefused   State = "Refused"
	StateStarting  State = "Starting"
	StateRunning   State = "Running"
	StateEnding    State = "Ending"
	StatePaused    State = "Paused"
	StatePreempted State = "Preempted"
	StateStopped   State = "Stopped"
	StateFailed    State = "Failed"
	StateFinished  State = "Finished"
	StateUnknown   State = "Unknown"
)

// Facts are what the cluster records about one workload and its namespace. All of them but the
// reference may be absent.
type Facts struct {
	// Now is the policy time, MachineNow the machine time: clocks have the first, events and pods
	// the second.
	Now, MachineNow time.Time
	// Zone is the time zone of the answer.
	Zone *time.Location
	// Namespace is the namespace, and Workload the root workload, or what the user named.
	Namespace string
	Workload  v1alpha1.WorkloadReference
	// Root is the workload, or nil if it does not exist.
	Root *unstructured.Unstructured
	// Others are the names of other workloads, if it does not exist.
	Others []string
	// Project is the project of the namespace, or nil if it is not a project's or may not be read.
	Project *v1alpha1.Project
	// ProjectName is the project that the namespace names.
	ProjectName string
	Clock       *v1alpha1.WorkloadClock
	// Pods are the pods of the workload, Events those on the workload and its parts.
	Pods   []corev1.Pod
	Events []corev1.Event
	// Neighbors are all pods of the namespace, if a pod of the workload waits because of anti-affinity.
	Neighbors []corev1.Pod
	Quotas    []corev1.ResourceQuota
	// Queued are Kueue's Workloads of the workload, Groups its pod groups of KAI-Scheduler.
	Queued, Groups []unstructured.Unstructured
	// Extensions are the requests for more time for the workload, the newest last.
	Extensions []v1alpha1.Extension
	// Unread are what could not be read, such as "events: forbidden".
	Unread []string
}

// Step is something that the user can do now.
type Step struct {
	// Text says what for, in the imperative.
	Text string `json:"text"`
	// Command is the exact command. It is empty if no command does it.
	Command string `json:"command,omitempty"`
}

// Answer explains a workload.
type Answer struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind,omitempty"`
	Name      string `json:"name"`
	Project   string `json:"project,omitempty"`
	State     State  `json:"state"`
	// Reason is the reason as one word in CamelCase, for programs.
	Reason string `json:"reason"`
	// Text is the answer in one or two sentences.
	Text string `json:"text"`
	// Details are further facts, each a sentence.
	Details []string `json:"details,omitempty"`
	// Steps are what the user can do, the best first.
	Steps []Step `json:"steps,omitempty"`
	// Unread are what could not be read, so that the answer may be incomplete.
	Unread []string `json:"unread,omitempty"`
}

// add adds a step.
func (a *Answer) add(text, command string) {
	a.Steps = append(a.Steps, Step{Text: text, Command: command})
}

// rules are tried in this order. What ended the workload comes before what keeps it from
// starting, and that before what will end it.
var rules = []func(*Facts) *Answer{
	explainMissing, explainStop, explainCompletion, explainEviction, explainClosedProject,
	explainKueue, explainRefusal, explainGroup, explainPreemptedPod, explainUnscheduled, explainContainers,
	explainPause, explainTermination, explainRun, explainSilence,
}

// Explain returns the answer for a workload.
func Explain(facts Facts) Answer {
	f := &facts
	if f.Zone == nil {
		f.Zone = time.UTC
	}
	var answer *Answer
	for _, rule := range rules {
		if answer = rule(f); answer != nil {
			break
		}
	}
	answer.Namespace, answer.Kind, answer.Name, answer.Project = f.Namespace, f.Workload.Kind, f.Workload.Name, f.ProjectName
	answer.Details = append(answer.Details, f.describeExtensions()...)
	answer.Details = append(answer.Details, f.describeDecisions()...)
	answer.Unread = f.Unread
	return *answer
}

// explainMissing answers for a name that nothing has. A pod that admission refused leaves no
// object and no event: only the user saw the message.
func explainMissing(f *Facts) *Answer {
	if f.Root != nil || f.Clock != nil || len(f.Pods) > 0 {
		return nil
	}
	a := &Answer{State: StateMissing, Reason: "NotFound", Text: "Nothing with this name exists in namespace " + f.Namespace + ", and no clock remembers it."}
	if len(f.Others) > 0 {
		a.Details = append(a.Details, shorten("The namespace has the workloads: "+strings.Join(f.Others, ", ")))
	}
	a.Details = append(a.Details, "If it was refused when you created it, the message then said why: nothing of it was stored.")
	a.add("list the workloads of the namespace", "sluice list -n "+f.namespace())
	a.add("see the refusal again without creating anything, with your own file", "kubectl create -n "+f.namespace()+" --dry-run=server -f FILE")
	return a
}

// explainSilence is the last rule: the workload exists, and nothing says why it has no pods.
func explainSilence(f *Facts) *Answer {
	a := &Answer{State: StateUnknown, Reason: "NothingReported", Text: "It exists, and it has no pods. No controller, queue or scheduler reports why."}
	a.Details = append(a.Details, "A controller may not have seen it yet, or the operator of its kind is not running. Events are deleted after one hour.")
	a.add("look again, with all that its controller records", "kubectl describe "+f.target())
	return a
}

// namespace returns the namespace as an argument of a command.
func (f *Facts) namespace() string { return argument(f.Namespace, "NAMESPACE") }

// target returns the workload as arguments of kubectl and sluice: job/training -n thesis.
func (f *Facts) target() string { return f.reference() + " -n " + f.namespace() }

// reference returns KIND/NAME, as kubectl and sluice accept it. A kind whose name Kubernetes' own kinds have, such as
// Volcano's Job, has its group.
func (f *Facts) reference() string {
	kind := schema.FromAPIVersionAndKind(f.Workload.APIVersion, f.Workload.Kind).GroupKind()
	text := kind.Kind
	if strings.Contains(kind.Group, ".") && (kind.Kind == "Job" || kind.Kind == "Service") {
		text += "." + kind.Group
	}
	return argument(strings.ToLower(text), "KIND") + "/" + argument(f.Workload.Name, "NAME")
}

// argument returns a name as an argument of a command, and a placeholder for a name that a shell
// could understand differently.
func argument(name, placeholder string) string {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return placeholder
	}
	return name
}

// latestEvent returns the latest event with one of the reasons, or nil.
func (f *Facts) latestEvent(reasons ...string) *corev1.Event {
	var latest *corev1.Event
	for i := range f.Events {
		event := &f.Events[i]
		if slices.Contains(reasons, event.Reason) && (latest == nil || !eventTime(event).Before(eventTime(latest))) {
			latest = event
		}
	}
	return latest
}

// eventTime returns when an event last happened.
func eventTime(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil && !event.Series.LastObservedTime.IsZero():
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	}
	return event.CreationTimestamp.Time
}
