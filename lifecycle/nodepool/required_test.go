// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/requirements"
	"sluice.dev/policies/engine"
)

func TestWhatTheEngineLacksGoesBeforeAllElse(t *testing.T) {
	lacks := requirements.Findings{
		Missing:  []requirements.Missing{{Policy: "schedulers.kueue", What: "fairSharing is not there", Fix: "turn it on"}},
		Settings: map[string]string{"a": "new"},
	}
	failures := []engine.Failure{{Policy: "schedulers.kueue", Err: engine.ErrDeadline}}
	good, bad := node("a", "8", "dgx"), node("b", "x", "dgx")
	before := metav1.Condition{Type: v1alpha1.ConditionRequirementsMet, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRequirementsMissing, Message: "as before"}
	met := metav1.Condition{Type: v1alpha1.ConditionRequirementsMet, Status: metav1.ConditionTrue, Reason: ReasonGPUsKnown, Message: "as before"}
	known := map[string]string{"a": "old", "b": "old"}
	for name, tt := range map[string]struct {
		nodes    []corev1.Node
		service  Service
		before   metav1.Condition
		want     string
		settings map[string]string
	}{
		"nothing is required":      {[]corev1.Node{good}, Service{}, before, "True GPUsKnown the GPUs of every node are known", nil},
		"all is there":             {[]corev1.Node{good}, Service{Required: 2}, before, "True GPUsKnown the GPUs of every node are known, and kube-scheduler has what is required of it", nil},
		"something is missing":     {[]corev1.Node{good}, Service{Required: 2, Findings: lacks}, met, "False RequirementsMissing fairSharing is not there: turn it on (policy schedulers.kueue)", lacks.Settings},
		"and GPUs are not known":   {[]corev1.Node{bad}, Service{Required: 2, Findings: lacks}, met, "False RequirementsMissing fairSharing is not there: turn it on (policy schedulers.kueue)", lacks.Settings},
		"a policy failed":          {[]corev1.Node{good}, Service{Failures: failures}, met, "Unknown PolicyFailed policy schedulers.kueue could not be asked what it requires: " + engine.ErrDeadline.Error(), known},
		"one failed, one lacks":    {[]corev1.Node{good}, Service{Findings: lacks, Failures: failures}, met, "False RequirementsMissing fairSharing is not there: turn it on (policy schedulers.kueue)", map[string]string{"a": "new", "b": "old"}},
		"one that lacked failed":   {[]corev1.Node{good}, Service{Failures: failures}, before, "False RequirementsMissing as before", known},
		"nobody could look":        {[]corev1.Node{good}, Service{Findings: lacks, Unseen: errors.New("refused")}, before, "False RequirementsMissing as before", known},
		"nobody could look at all": {[]corev1.Node{good}, Service{Unseen: errors.New("refused")}, met, "True GPUsKnown as before", known},
	} {
		t.Run(name, func(t *testing.T) {
			p := pool("dgx", "dgx")
			p.Status.Conditions, p.Status.Settings = []metav1.Condition{tt.before}, known
			status := Status(&p, Observe(&p, []v1alpha1.NodePool{p}, tt.nodes, nil), tt.service, metav1.Now())
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRequirementsMet)
			if got := strings.Join([]string{string(c.Status), c.Reason, c.Message}, " "); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
			if diff := cmp.Diff(tt.settings, status.Settings); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if status.Nodes != 1 {
				t.Errorf("nodes %d, want 1: they are told in any case", status.Nodes)
			}
		})
	}
}

func TestALongListOfWhatIsMissingFitsInACondition(t *testing.T) {
	service := Service{Supported: true}
	for _, fix := range strings.Fields(strings.Repeat("mend ", 100)) {
		service.Findings.Missing = append(service.Findings.Missing, requirements.Missing{
			Policy: "it", What: strings.Repeat("é", 500), Fix: fix + strings.Repeat("x", len(service.Findings.Missing)),
		})
	}
	p := pool("dgx", "dgx")
	status := Status(&p, Observation{}, service, metav1.Now())
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRequirementsMet); len(c.Message) > 32768 {
		t.Errorf("the message has %d bytes", len(c.Message))
	}
}
