// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// What only the webhook can know is refused with the field, the value and what
// is allowed. Guards invariant 4 of the design: a Project that names somebody
// else's namespace or department.
func TestWhatTheWebhookRefuses(t *testing.T) {
	create(t, namespace("bystander"))
	create(t, namespace("promised", v1alpha1.AnnotationAdoptBy, "course-ml"))
	create(t, namespace("mislabelled"))
	department := func(change func(*v1alpha1.NoticeTerms)) client.Object {
		d := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
		change(&d.Spec.Notices)
		return d
	}
	tests := map[string]struct {
		object client.Object
		wants  []string
	}{
		"no such department":     {project("bad", func(p *v1alpha1.Project) { p.Spec.Department = "h2-nobody" }), []string{"spec.department", "h2-nobody"}},
		"a foreign pool":         {project("bad", func(p *v1alpha1.Project) { p.Spec.NodePools[0].Name = "dgx" }), []string{"spec.nodePools[0].name", `"dgx"`, `"dgx-mig"`}},
		"looser":                 {project("bad", loose), []string{"spec.workloads[interactive].maxRuntime", "49h", "48h"}},
		"an unmarked namespace":  {project("bad", in("bystander")), []string{"spec.namespace", "kubectl annotate namespace bystander sluice.dev/adopt-by=bad"}},
		"marked for another":     {project("bad", in("promised")), []string{"spec.namespace", "marked for project course-ml"}},
		"another's namespace":    {project("bad", in("thesis-mueller")), []string{"spec.namespace", "thesis-mueller", "one namespace has one project"}},
		"an operator's":          {project("bad", in("gpu-operator")), []string{"spec.namespace", "belongs to the system"}},
		"an unmarked own name":   {project("bystander"), []string{"spec.namespace", "exists already"}},
		"a zone that is not":     {department(func(n *v1alpha1.NoticeTerms) { n.TimeZone = "Europe/Magdeburg" }), []string{"spec.notices.timeZone", "Europe/Magdeburg", "Europe/Berlin"}},
		"a digest without a day": {department(func(n *v1alpha1.NoticeTerms) { n.Digest = "0 8 30 2 *" }), []string{"spec.notices.digest", "0 8 30 2 *", "never"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := shared.admin.Create(t.Context(), tc.object, client.DryRunAll)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
	t.Run("a department that has projects", func(t *testing.T) {
		err := shared.admin.Delete(t.Context(), &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "h2-students"}})
		if err == nil || !strings.Contains(err.Error(), "course-ml, thesis-mueller") {
			t.Errorf("err = %v, want a refusal that names the projects", err)
		}
	})
	t.Run("loosened later", func(t *testing.T) {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}}
		if err := get(t, p); err != nil {
			t.Fatal(err)
		}
		loose(p)
		if err := shared.admin.Update(t.Context(), p, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "49h") {
			t.Errorf("err = %v, want the loosening refused", err)
		}
	})
}

func loose(p *v1alpha1.Project) {
	p.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
		v1alpha1.WorkloadInteractive: {MaxRuntime: ptr.To(period.MustParseDuration("49h"))},
	}
}

// A pod of a governed namespace passes the webhook, whose record is one line;
// no other pod does. Guards invariant 2 of the design: no other pod is touched.
func TestGovernedPodsPassTheWebhookAndOthersDoNot(t *testing.T) {
	pod := func(namespace, name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "main", Image: "any"}}},
		}
	}
	create(t, pod("thesis-mueller", "governed-pod"))
	create(t, pod("default", "stranger-pod"))
	eventually(t, func() error { return logged("webhook", `"namespace":"thesis-mueller","name":"governed-pod"`) })
	if logged("webhook", "stranger-pod") == nil {
		t.Error("a pod outside of projects came to the webhook")
	}
}
