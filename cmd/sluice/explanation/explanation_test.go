// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
)

// The golden files are compared byte for byte.
func init() { golden.NormalizeCRLFToLF = false }

func TestExplain(t *testing.T) {
	all := situations(t)
	if len(all) < 15 {
		t.Fatalf("only %d situations", len(all))
	}
	for name, facts := range all {
		t.Run(name, func(t *testing.T) {
			answer := Explain(facts)
			var text strings.Builder
			if err := answer.Write(&text); err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, text.String(), name+".txt")
			state, _, _ := strings.Cut(name, "-")
			if !strings.EqualFold(string(answer.State), state) {
				t.Errorf("state %s, want %s", answer.State, state)
			}
			if len(answer.Steps) == 0 && answer.State != StateFinished {
				t.Error("the answer says nothing that the user can do")
			}
		})
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != len(all) {
		t.Errorf("%d golden files for %d situations: %v", len(files), len(all), err)
	}
}

// Each reason for which Sluice stops a workload has an answer before and after the stop.
func TestEachEndReasonIsExplained(t *testing.T) {
	before, after := map[string]bool{}, map[string]bool{}
	for _, facts := range situations(t) {
		switch answer := Explain(facts); answer.State {
		case StateEnding, StateRunning, StateStarting:
			before[answer.Reason] = true
		case StateStopped:
			after[answer.Reason] = true
		}
	}
	for _, reason := range []v1alpha1.EndReason{
		v1alpha1.EndMaxRuntime, v1alpha1.EndIdle, v1alpha1.EndProjectSuspended, v1alpha1.EndShareExceeded, v1alpha1.EndPreempted,
		v1alpha1.EndStartTimeout, v1alpha1.EndProjectDeleted,
	} {
		if !after[string(reason)] {
			t.Errorf("no golden file has a workload that was stopped by %s", reason)
		}
		if !before[string(reason)] && reason != v1alpha1.EndProjectDeleted { // such a project stops its workloads at once
			t.Errorf("no golden file has a workload that %s will end", reason)
		}
	}
}

// FuzzExplain gives each text that another program or user writes: an answer has one line per fact, bounded,
// without control characters, and no command repeats it.
func FuzzExplain(f *testing.F) {
	for _, text := range []string{"", quotaAnswer, "\x1b[2J\n$(reboot)", strings.Repeat("x", 5000), "`id`; rm -rf /", "0/1 nodes: 1 Insufficient $(id)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		facts := jobFacts(t)
		facts.Workload.Name, facts.Namespace = text, text
		facts.Root.SetName(text)
		facts.Root.SetNamespace(text)
		for _, change := range []func(*Facts){
			func(f *Facts) { f.Events = []corev1.Event{event("FailedCreate", text)} },
			func(f *Facts) { f.Pods = []corev1.Pod{unschedulable(text)} },
			func(f *Facts) { f.Pods = []corev1.Pod{waitingContainer("ImagePullBackOff", text, nil)} },
			func(f *Facts) { f.Clock = stopped(v1alpha1.EndReason(text), at(40)) },
			func(f *Facts) {
				f.Queued = []unstructured.Unstructured{kueueWorkload(true, map[string]any{"type": "QuotaReserved", "status": "False", "message": text})}
			},
			func(f *Facts) {
				f.Pods = []corev1.Pod{pod(corev1.PodRunning, func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationDecisions] = text })}
			},
		} {
			hostile := facts
			change(&hostile)
			answer := Explain(hostile)
			var out strings.Builder
			if err := answer.Write(&out); err != nil {
				t.Fatal(err)
			}
			for _, r := range out.String() {
				if r != '\n' && (r < ' ' || r == 0x7f || r == 0x202e) {
					t.Fatalf("control character %q in %q", r, out.String())
				}
			}
			for _, step := range answer.Steps {
				if strings.ContainsAny(step.Command, "$`;&\n") {
					t.Fatalf("a command repeats text of others: %q", step.Command)
				}
			}
		}
	})
}

// A kind that has the name of one of Kubernetes' own is named with its group, or a command would change another object.
func TestReference(t *testing.T) {
	for want, workload := range map[string]v1alpha1.WorkloadReference{
		"job/training":                      {APIVersion: "batch/v1", Kind: "Job", Name: "training"},
		"job.batch.volcano.sh/training":     {APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job", Name: "training"},
		"service.serving.knative.dev/model": {APIVersion: "serving.knative.dev/v1", Kind: "Service", Name: "model"},
		"pytorchjob/training":               {APIVersion: "kubeflow.org/v1", Kind: "PyTorchJob", Name: "training"},
		"KIND/NAME":                         {Name: "$(reboot)"},
	} {
		if got := (&Facts{Workload: workload}).reference(); got != want {
			t.Errorf("%+v is %s, want %s", workload, got, want)
		}
	}
	long := Facts{Workload: v1alpha1.WorkloadReference{Name: strings.Repeat("x", 49)}}
	if got := long.copyName(); got != "NEW" {
		t.Errorf("the copy of a long name is %s", got)
	}
}
