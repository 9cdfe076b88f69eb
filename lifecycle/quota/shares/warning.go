// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
)

// warning identifies a warning of a pod.
type warning struct {
	pod    types.UID
	reason v1alpha1.FindingReason
	device string
	since  int64
}

func newWarning(f v1alpha1.Finding) warning {
	return warning{f.PodUID, f.Reason, f.Device, f.Since.Unix()}
}

var warningsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_share_warnings_total",
	Help: "Warnings of pods of projects that use GPUs or GPU memory beyond what they were given, by the reason of the finding: " +
		"ShareExceeded, NotAllocated, MemoryConflict.",
}, []string{"reason"})

func init() { //nolint:gochecknoinits // controller-runtime's registry is filled by init functions
	metrics.Registry.MustRegister(warningsTotal)
	// A query of the increase ignores the first value of a series, so each begins at 0.
	for _, reason := range []v1alpha1.FindingReason{v1alpha1.FindingShareExceeded, v1alpha1.FindingNotAllocated, v1alpha1.FindingMemoryConflict} {
		warningsTotal.WithLabelValues(string(reason))
	}
}

// warnAll warns each pod with a finding once, and forgets the warnings whose findings are gone.
func (r *Reconciler) warnAll(ctx context.Context, node *v1alpha1.GPUNode, d Decision) error {
	if !d.Fresh {
		return nil
	}
	r.mu.Lock()
	given := r.warned[node.Name]
	r.mu.Unlock()
	next := map[warning]bool{}
	var problems []error
	for _, f := range d.Warn {
		w := newWarning(f)
		isAnnounced := slices.ContainsFunc(d.Announce, func(a v1alpha1.Finding) bool { return a.PodUID == f.PodUID })
		if !given[w] {
			if err := r.warn(ctx, node, f, isAnnounced); err != nil {
				problems = append(problems, err)
				continue
			}
		}
		next[w] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.warned[node.Name] = next; len(next) == 0 {
		delete(r.warned, node.Name)
	}
	return errors.Join(problems...)
}

func (r *Reconciler) forgetWarnings(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.warned, node)
}

// warn warns the pod with a finding. The announcement of its eviction has a Notice of its own, which replaces
// the warning's.
func (r *Reconciler) warn(ctx context.Context, node *v1alpha1.GPUNode, f v1alpha1.Finding, isAnnounced bool) error {
	reference, known := r.referenceOf(node, f.PodUID)
	if !known {
		return nil
	}
	if evicts(f.Reason) && !isAnnounced {
		if err := r.recordNotice(ctx, node, f, reference); err != nil {
			return err
		}
	}
	warningsTotal.WithLabelValues(string(f.Reason)).Inc()
	log.FromContext(ctx).Info("Warned pod", "namespace", reference.Namespace, "pod", reference.Name, "reason", f.Reason,
		"node", node.Name, "device", f.Device, "excessMiB", f.ExcessMiB)
	r.Events.Eventf(reference, nil, corev1.EventTypeWarning, string(f.Reason), "Warn", "%s", eventMessage(node, f))
	return nil
}

// referenceOf returns a pod for events: a GPU pod, or one that uses GPUs without a request.
func (r *Reconciler) referenceOf(node *v1alpha1.GPUNode, uid types.UID) (*corev1.ObjectReference, bool) {
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", UID: uid}
	if pod, known := r.pods.ByUID(uid); known {
		reference.Namespace, reference.Name = pod.Namespace, pod.Name
		return reference, true
	}
	usage := usageOf(node, uid)
	if usage == nil {
		return nil, false
	}
	reference.Namespace, reference.Name = usage.Namespace, usage.Name
	return reference, true
}

// recordNotice records the warning to the pod's creator: one for each pod and reason.
func (r *Reconciler) recordNotice(ctx context.Context, node *v1alpha1.GPUNode, f v1alpha1.Finding, reference *corev1.ObjectReference) error {
	project, department, err := inventory.TenantForNamespace(ctx, r.Client, reference.Namespace)
	if apierrors.IsNotFound(err) || err == nil && project == nil {
		return nil // a Notice needs a department
	}
	if err != nil {
		return err
	}
	pod, known := r.pods.ByUID(f.PodUID)
	if !known {
		return nil
	}
	recipients, err := r.Announcer.Recipients(ctx, pod, project, department)
	if err != nil {
		return err
	}
	inputs := noticeInputs(node, f)
	inputs[mail.InputProject], inputs[mail.InputDepartment] = project.Name, department.Name
	_, err = r.Notices.Record(ctx, notification.Announcement{
		Kind: v1alpha1.NoticeShareExceeded, Threshold: string(f.PodUID) + " " + string(f.Reason), DueAt: r.Clock.Now(), Inputs: inputs,
		Subject: v1alpha1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}, recipients)
	return err
}

// noticeInputs returns what a Notice says about a finding. A pod on several devices may be within the sum of
// its shares: then the amounts are left out.
func noticeInputs(node *v1alpha1.GPUNode, f v1alpha1.Finding) map[string]string {
	inputs := map[string]string{mail.InputNode: node.Name}
	if index, known := gpuIndex(node, f.Device); known {
		inputs[mail.InputGPU] = strconv.Itoa(int(index))
	}
	if used, allowed, known := amounts(node, f); known {
		inputs[mail.InputMemoryMiB], inputs[mail.InputShareMiB] = strconv.FormatInt(used, 10), strconv.FormatInt(allowed, 10)
	}
	return inputs
}

// amounts returns the memory that a pod uses and what it may use, if the one is above the other.
func amounts(node *v1alpha1.GPUNode, f v1alpha1.Finding) (used, allowed int64, known bool) {
	usage := usageOf(node, f.PodUID)
	if usage == nil || usage.MemoryMiB == nil {
		return 0, 0, false
	}
	allowed = usage.ShareMiB
	if f.Reason == v1alpha1.FindingShareExceeded {
		allowed = max(allowed, usage.LimitMiB)
	}
	return *usage.MemoryMiB, allowed, allowed > 0 && *usage.MemoryMiB > allowed
}

func usageOf(node *v1alpha1.GPUNode, uid types.UID) *v1alpha1.PodUsage {
	at := slices.IndexFunc(node.Status.Pods, func(u v1alpha1.PodUsage) bool { return u.UID == uid })
	if at < 0 {
		return nil
	}
	return &node.Status.Pods[at]
}

// gpuIndex returns the number of a GPU on its node; unknown for MIG devices.
func gpuIndex(node *v1alpha1.GPUNode, device string) (int32, bool) {
	at := slices.IndexFunc(node.Status.GPUs, func(g v1alpha1.ObservedGPU) bool { return string(g.UUID) == device })
	if at < 0 {
		return 0, false
	}
	return node.Status.GPUs[at].Index, true
}

// describe says in one sentence what a finding is, for events about the pod.
func describe(node *v1alpha1.GPUNode, f v1alpha1.Finding) string {
	device := "device " + f.Device
	if index, known := gpuIndex(node, f.Device); known {
		device = fmt.Sprintf("GPU %d (%s)", index, f.Device)
	}
	if f.Reason == v1alpha1.FindingNotAllocated {
		return "it uses " + device + " of node " + node.Name + ", which was not allocated to it"
	}
	text := fmt.Sprintf("it uses %d MiB more memory than its share on %s of node %s", f.ExcessMiB, device, node.Name)
	if used, allowed, known := amounts(node, f); known {
		text += fmt.Sprintf(" (%d MiB in all, its share is %d MiB)", used, allowed)
	}
	if f.Reason == v1alpha1.FindingMemoryConflict {
		text += ", and other pods need the memory that they were promised"
	}
	return text
}

// eventMessage returns the warning's event: what happened, and what to do.
func eventMessage(node *v1alpha1.GPUNode, f v1alpha1.Finding) string {
	if f.Reason == v1alpha1.FindingNotAllocated {
		return "This pod uses a GPU without a request: " + describe(node, f) + ". Request GPUs in the pod, and set no device variables in it"
	}
	return "This pod uses too much GPU memory: " + describe(node, f) +
		". Reduce its memory use, or create it again with a larger share; otherwise it will be evicted, with notice"
}
