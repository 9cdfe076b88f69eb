// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/quota/pending"
	"sluice.dev/lifecycle/rendering/apply"
)

// createFailures are the reasons of events with which controllers report that they could not
// create a pod: those of Kubernetes, and of Kubeflow's operators.
var createFailures = []string{"FailedCreate", "FailedCreatePod"}

// Patterns of the answers that controllers repeat in these events.
var (
	webhookPattern   = regexp.MustCompile(`admission webhook "([a-z0-9.-]+)" denied the request: (?s:(.*))`)
	admissionPattern = regexp.MustCompile(`ValidatingAdmissionPolicy '([a-z0-9.-]+)'[^:]*denied request: (?s:(.*))`)
	policyPattern    = regexp.MustCompile(`\(policy ([A-Za-z0-9.-]+)\)`)
	quotaPattern     = regexp.MustCompile(`exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)`)
	securityPattern  = regexp.MustCompile(`violates PodSecurity "?([a-z]+)[^"]*"?: (?s:(.*))`)
)

// explainRefusal answers for a workload whose controller could not create pods, if that is newer
// than its newest pod. The events outlast a pause, in which no pod is created.
func explainRefusal(f *Facts) *Answer {
	event := f.latestEvent(createFailures...)
	if event == nil || f.runs() || f.isPaused() || slices.ContainsFunc(f.Pods, func(p corev1.Pod) bool { return p.CreationTimestamp.After(eventTime(event)) }) {
		return nil
	}
	return f.explainFailedCreate(event.Message)
}

// explainFailedCreate answers for the message of a controller that could not create a pod.
func (f *Facts) explainFailedCreate(message string) *Answer {
	if rejection, ok := pending.ParseQuotaRejection(message); ok {
		return f.explainGPUQuota(rejection)
	}
	if m := quotaPattern.FindStringSubmatch(message); m != nil {
		a := &Answer{State: StateWaiting, Reason: "QuotaExceeded"}
		a.Text = fmt.Sprintf("The quota %s of the namespace is used up: %s requested, %s used of %s.", m[1],
			shorten(m[2]), shorten(m[3]), shorten(m[4]))
		a.Details = append(a.Details, "Its controller tries again by itself.")
		a.add("see the quota, then delete what you no longer need", "kubectl describe resourcequota "+argument(m[1], "NAME")+" -n "+f.namespace())
		return a
	}
	if m := webhookPattern.FindStringSubmatch(message); m != nil {
		return f.explainDenial(m[1], m[2])
	}
	if m := admissionPattern.FindStringSubmatch(message); m != nil {
		return f.explainDenial(m[1], m[2])
	}
	if strings.Contains(message, "failed calling webhook") {
		a := &Answer{State: StateWaiting, Reason: "WebhookUnavailable", Text: "Its pods cannot be checked, so they are not created: " + sentence(message)}
		a.Details = append(a.Details, "Nothing is wrong with it. Its controller tries again by itself; if this lasts for minutes, tell an administrator.")
		a.add("see the attempts", "kubectl describe "+f.target())
		return a
	}
	a := &Answer{State: StateRefused, Reason: "FailedCreate"}
	if m := securityPattern.FindStringSubmatch(message); m != nil {
		a.Reason = "PodSecurity"
		a.Text = fmt.Sprintf("Its pods are refused: the namespace allows the level %q of Pod Security only. %s", m[1], sentence(m[2]))
		f.addCorrection(a)
		return a
	}
	a.Text = "Its controller cannot create pods: " + sentence(message)
	a.add("see all attempts", "kubectl describe "+f.target())
	return a
}

// explainDenial answers for pods that admission denied.
func (f *Facts) explainDenial(webhook, message string) *Answer {
	reasons := strings.Split(strings.TrimSpace(policyPattern.ReplaceAllString(message, "")), "\n")
	for i := range reasons {
		reasons[i] = strings.TrimSpace(reasons[i])
	}
	a := &Answer{State: StateRefused, Reason: "PolicyDenied", Text: "Its pods are refused: " + sentence(strings.Join(reasons, "; "))}
	var policies []string
	for _, m := range policyPattern.FindAllStringSubmatch(message, 10) {
		policies = append(policies, m[1])
	}
	slices.Sort(policies)
	policies = slices.Compact(policies)
	switch {
	case len(policies) == 1:
		a.Details = append(a.Details, "Policy "+policies[0]+" refuses them. Its controller repeats the attempt, with the same result.")
	case len(policies) > 1:
		a.Details = append(a.Details, "Policies "+strings.Join(policies, ", ")+" refuse them. Its controller repeats the attempt, with the same result.")
	case !strings.HasSuffix(webhook, ".sluice.dev") && !strings.HasPrefix(webhook, "sluice-"):
		a.Reason = "WebhookDenied"
		a.Details = append(a.Details, "Not Sluice but the webhook "+webhook+" refuses them: ask its administrators.")
	}
	f.addCorrection(a)
	return a
}

// addCorrection adds how a refused workload is corrected.
func (f *Facts) addCorrection(a *Answer) {
	a.add("correct your file, and see whether it is accepted now", "kubectl create -n "+f.namespace()+" --dry-run=server -f FILE")
	a.add("delete it, then create the corrected one", "sluice delete "+f.target())
}

// explainGPUQuota answers for pods that do not fit into the GPU quota.
func (f *Facts) explainGPUQuota(rejection pending.QuotaRejection) *Answer {
	a := &Answer{State: StateWaiting, Reason: "GPUQuotaExceeded"}
	at := ""
	if pool := rejection.NodePool(); pool != "" {
		at = " of node pool " + pool
	}
	a.Text = fmt.Sprintf("It waits for GPU quota: each pod needs %s%s, and %s.", rejection.Charge.Describe(), at, f.describeQuota(rejection))
	for i := range f.Quotas {
		if other := pending.DescribeOtherGuarantee(&f.Quotas[i], rejection); other != "" && f.Quotas[i].Name == rejection.Quota {
			a.Details = append(a.Details, sentence(other))
		}
	}
	f.addQuotaHolders(a)
	a.Details = append(a.Details, "Its pods are created by themselves as soon as quota becomes available, the oldest workload first.")
	a.add("see what is used and free", "sluice whoami")
	f.addList(a)
	return a
}

// addList adds the list of the project's workloads.
func (f *Facts) addList(a *Answer) {
	a.add("see what runs in the project, whose it is, and how long it may run", "sluice list -n "+f.namespace())
}

// describeQuota returns how much of the quota is used.
func (f *Facts) describeQuota(rejection pending.QuotaRejection) string {
	for i := range f.Quotas {
		hard, used, found := apply.EnforcedLimit(&f.Quotas[i], rejection.Resource)
		if f.Quotas[i].Name != rejection.Quota || !found {
			continue
		}
		kind := ""
		if v1alpha1.IsGuaranteedMilli(rejection.Resource) {
			kind = " for work that cannot be preempted"
		}
		return fmt.Sprintf("project %s uses %s of its limit of %s%s", f.ProjectName,
			workload.Milli(used).Describe(), workload.Milli(hard).Describe(), kind)
	}
	return "the quota of project " + f.ProjectName + " is used up"
}

// addQuotaHolders names the workloads of the project that hold the most.
func (f *Facts) addQuotaHolders(a *Answer) {
	if f.Project == nil || len(f.Project.Status.Workloads) == 0 {
		return
	}
	var holders []string
	for i := range f.Project.Status.Workloads[:min(3, len(f.Project.Status.Workloads))] {
		w := &f.Project.Status.Workloads[i]
		text := w.Kind + " " + w.Name + " (" + workload.Milli(w.GPUs.MilliValue()).Describe()
		if w.CreatedBy != "" {
			text += " of " + w.CreatedBy
		}
		holders = append(holders, text+")")
	}
	text := "GPUs are held by " + strings.Join(holders, ", ")
	if more := len(f.Project.Status.Workloads) - 3 + int(f.Project.Status.MoreWorkloads); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	a.Details = append(a.Details, text+".")
}

// describeExtensions returns what became of the requests for more time.
func (f *Facts) describeExtensions() []string {
	if len(f.Extensions) == 0 {
		return nil
	}
	e := &f.Extensions[len(f.Extensions)-1]
	name := "Request " + e.Name
	if e.Spec.By != nil {
		name += " for " + e.Spec.By.String() + " more"
	}
	switch e.Status.Decision {
	case "":
		return []string{name + " waits for an approver."}
	case v1alpha1.ExtensionDenied:
		text := name + " was denied"
		if e.Status.DecidedBy != "" {
			text += " by " + e.Status.DecidedBy
		}
		if e.Status.Message != "" {
			return []string{text + ": " + sentence(e.Status.Message)}
		}
		return []string{text + "."}
	}
	return []string{name + " was granted."}
}
