// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func TestAnnounce(t *testing.T) {
	f := newFixture(t, newPod("train", "n"))
	a := f.r.Announcer
	if err := a.Announce(t.Context(), preempted("train")); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Minute)
	if err := a.Announce(t.Context(), preempted("train")); err != nil { // keeps its deadline
		t.Fatal(err)
	}
	pod := f.getPod("train")
	if got := pod.Annotations[v1alpha1.AnnotationPreemptAt]; got != "2026-10-01T08:05:00Z" ||
		pod.Annotations[v1alpha1.AnnotationPreemptReason] != "Preempted" || pod.Annotations[v1alpha1.AnnotationPreemptFor] != "c" {
		t.Errorf("the pod has %v", pod.Annotations)
	}
	notices := f.notices()
	if len(notices) != 1 || notices[0].Spec.Kind != v1alpha1.NoticePreemption || notices[0].Spec.Recipient.Email != "anna@example.org" ||
		!notices[0].Spec.Deadline.Time.Equal(testTime.Add(5*time.Minute)) {
		t.Errorf("the notices are %+v", notices)
	}
	if len(f.events.Events) != 1 {
		t.Errorf("%d events were recorded, want 1", len(f.events.Events))
	}
	other := preempted("train")
	other.Reason, other.Claimant = v1alpha1.EndShareExceeded, ""
	if err := a.Withdraw(t.Context(), other, "for another reason"); err != nil || f.getPod("train").Annotations[v1alpha1.AnnotationPreemptAt] == "" {
		t.Errorf("an announcement for another reason was withdrawn: %v", err)
	}
	if err := a.Withdraw(t.Context(), preempted("train"), "the claimant is gone"); err != nil {
		t.Fatal(err)
	}
	if pod := f.getPod("train"); len(pod.Annotations) != 0 {
		t.Errorf("after the withdrawal the pod has %v", pod.Annotations)
	}
	if phase := f.notices()[0].Status.Phase; phase != v1alpha1.NoticeSuperseded {
		t.Errorf("the notice is %q", phase)
	}
}

func TestAnnounceIsCompletedAfterCrash(t *testing.T) {
	for crashAt := 1; crashAt <= 2; crashAt++ {
		for _, after := range []bool{false, true} {
			f := newFixture(t, newPod("train", "n"))
			f.crashAt, f.crashAfterWrite = crashAt, after
			_ = f.r.Announcer.Announce(t.Context(), preempted("train"))
			f.restart()
			f.crashAt = 0
			f.now = f.now.Add(time.Second)
			if err := f.r.Announcer.Announce(t.Context(), preempted("train")); err != nil {
				t.Fatal(err)
			}
			if _, announced := Parse(f.getPod("train")); !announced || len(f.notices()) != 1 {
				t.Errorf("crash at write %d (after: %t): announced %t, %d notices", crashAt, after, announced, len(f.notices()))
			}
		}
	}
}

func TestPodsThatAreNotAnnounced(t *testing.T) {
	foreign := newPod("foreign", "n")
	foreign.Namespace, foreign.Labels = "kube-system", nil
	unlabeled := newPod("unlabeled", "n")
	unlabeled.Labels = nil
	other := newPod("replaced", "n")
	other.UID = "uid-of-its-successor"
	completed := newPod("completed", "n")
	completed.Status.Phase = corev1.PodSucceeded
	f := newFixture(t, foreign, unlabeled, other, newPod("unbound", ""), completed)
	for name, want := range map[string]error{"unlabeled": ErrNotGoverned, "replaced": nil, "unbound": nil, "gone": nil, "completed": nil} {
		if err := f.r.Announcer.Announce(t.Context(), preempted(name)); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := preempted("foreign")
	a.Pod.Namespace = "kube-system"
	if err := f.r.Announcer.Announce(t.Context(), a); !errors.Is(err, ErrNotGoverned) {
		t.Errorf("a pod outside of projects: %v", err)
	}
	if len(f.Values())+len(f.notices()) > 0 {
		t.Errorf("announced: %v %v", f.Values(), f.notices())
	}
}

func TestParseHostileAnnotations(t *testing.T) {
	valid := map[string]string{
		v1alpha1.AnnotationPreemptAt: "2026-10-01T08:05:00Z", v1alpha1.AnnotationPreemptReason: "Preempted", v1alpha1.AnnotationPreemptFor: "c",
	}
	for name, change := range map[string]func(*corev1.Pod){
		"no time":      func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationPreemptAt] = "soon" },
		"no reason":    func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.AnnotationPreemptReason) },
		"other reason": func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationPreemptReason] = "MaxRuntime" },
		"no claimant":  func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.AnnotationPreemptFor) },
		"no node":      func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"no project":   func(p *corev1.Pod) { p.Labels = nil },
		"terminating":  func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: testTime} },
		"completed":    func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
	} {
		pod := newPod("train", "n")
		pod.Annotations = map[string]string{}
		for key, value := range valid {
			pod.Annotations[key] = value
		}
		if _, ok := Parse(pod); !ok {
			t.Fatal("the valid announcement is not accepted")
		}
		change(pod)
		if p, ok := Parse(pod); ok {
			t.Errorf("%s: accepted as %+v", name, p)
		}
	}
}
