// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Accounts that start workloads automatically.
const (
	ciAccount  = "system:serviceaccount:stopped:ci"
	autoscaler = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	scheduler  = "system:serviceaccount:kube-system:cronjob-controller"
	rollouts   = "system:serviceaccount:kube-system:deployment-controller"
)

// restartTest has a cluster of its own, because it advances policy time, and a project whose
// workloads may run for two days and restart two hours after they were stopped.
type restartTest struct {
	*policyTimeCluster
	ns                string
	ada               kubernetes.Interface
	automationClients map[string]kubernetes.Interface
}

func newRestartTest(t *testing.T) *restartTest {
	t.Helper()
	s := &restartTest{policyTimeCluster: newPolicyTimeCluster(t), ns: "stopped", automationClients: map[string]kubernetes.Interface{}}
	s.createForTest(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "stopping"},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "4", "8")},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {
				MaxRuntime: ptr.To(period.MustParseDuration("48h")), ResetAfter: ptr.To(period.MustParseDuration("2h")),
			}},
			Notices: v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin"},
		},
	})
	s.createGovernedProject(t, "stopping", s.ns, newPoolQuota("dgx", "4", "8"))
	for _, subject := range []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: ada},
		{Kind: rbacv1.ServiceAccountKind, Namespace: s.ns, Name: "ci"},
	} {
		s.createForTest(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "edit-" + strings.ToLower(subject.Kind)},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{subject},
		})
	}
	s.ada = s.impersonate(t, ada, rest.NoWarnings{})
	for _, account := range []string{ciAccount, autoscaler, scheduler, rollouts} {
		s.automationClients[account] = s.impersonate(t, account, rest.NoWarnings{})
	}
	eventually(t, func() error {
		if _, err := s.automationClients[ciAccount].CoreV1().Pods(s.ns).List(t.Context(), metav1.ListOptions{}); err != nil {
			return err
		}
		_, err := s.ada.CoreV1().Pods(s.ns).List(t.Context(), metav1.ListOptions{})
		return err
	})
	return s
}

// createAsAda creates an object as the user ada. The stop of a workload applies to its
// creator.
func (s *restartTest) createAsAda(t *testing.T, object client.Object) {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: ada, Groups: []string{"system:authenticated"}}
	config.WarningHandler = rest.NoWarnings{}
	adaClient, err := client.New(config, client.Options{Scheme: s.adminClient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := adaClient.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// podTemplateRunning returns the template of a pod with a GPU that runs a program.
func podTemplateRunning(program string) corev1.PodTemplateSpec {
	return podTemplateFor(program, v1alpha1.ResourceNVIDIAGPU, withWorkloadType(v1alpha1.WorkloadTrain))
}

func (s *restartTest) newJob(name, program string) *batchv1.Job {
	template := podTemplateRunning(program)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: batchv1.JobSpec{Template: template}}
}

func (s *restartTest) newDeployment(name, program string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Template: podTemplateRunning(program),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": program}},
		},
	}
}

func (s *restartTest) newStatefulSet(name, program string, replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Template: podTemplateRunning(program),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": program}},
		},
	}
}

func (s *restartTest) newWorkloadPod(name, program string, owners ...metav1.OwnerReference) *corev1.Pod {
	template := podTemplateRunning(program)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name, Labels: template.Labels, OwnerReferences: owners},
		Spec:       template.Spec,
	}
}

// asWorkload returns the object with its group and kind.
func (s *restartTest) asWorkload(t *testing.T, object client.Object) workload {
	t.Helper()
	kind, err := s.adminClient.GroupVersionKindFor(object)
	if err != nil {
		t.Fatal(err)
	}
	return workload{object, kind.Group, kind.Kind}
}

func (s *restartTest) waitUntilRunning(t *testing.T, object client.Object) {
	t.Helper()
	s.waitForClock(t, s.asWorkload(t, object), "runs", func(c *v1alpha1.WorkloadClockStatus) bool {
		return c.State == v1alpha1.ClockStateRunning
	})
}

// waitUntilStopped waits until the workload was stopped at least so many times, its spec and
// its annotation say so, and none of its pods runs.
func (s *restartTest) waitUntilStopped(t *testing.T, object client.Object, times int32) {
	t.Helper()
	w := s.asWorkload(t, object)
	s.eventuallyAfterStep(t, func() error {
		if !s.isStopped(t, w) {
			return unexpectedState(w.kind+" "+w.GetName()+" is stopped", "the spec runs the workload")
		}
		if w.kind != "Pod" && w.GetAnnotations()[v1alpha1.AnnotationStoppedUntil] == "" {
			return unexpectedState(w.kind+" "+w.GetName()+" has the annotation stopped-until", w.GetAnnotations())
		}
		return nil
	})
	s.waitForClock(t, w, "is stopped", func(c *v1alpha1.WorkloadClockStatus) bool {
		return c.Stopped != nil && c.Stopped.Times >= times && c.RunningSince == nil
	})
}

func mergePatch(patch string) (types.PatchType, []byte) { return types.MergePatchType, []byte(patch) }

// setRestartWebhook enables or disables the webhook for restarts.
func (s *restartTest) setRestartWebhook(t *testing.T, enabled bool) {
	t.Helper()
	eventually(t, func() error {
		var configuration admissionv1.ValidatingWebhookConfiguration
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Name: "sluice"}, &configuration); err != nil {
			return err
		}
		for i := range configuration.Webhooks {
			if w := &configuration.Webhooks[i]; w.Name == "restarts.sluice.dev" {
				w.ObjectSelector = &metav1.LabelSelector{}
				if !enabled {
					w.ObjectSelector.MatchLabels = map[string]string{"matches": "nothing"}
				}
			}
		}
		return s.adminClient.Update(t.Context(), &configuration)
	})
	eventually(t, func() error {
		_, err := s.ada.CoreV1().Pods(s.ns).Create(t.Context(), s.newWorkloadPod("probe", "train"), metav1.CreateOptions{DryRun: dryRun})
		if (err != nil) != enabled {
			return unexpectedState("the API server has applied the change of the webhook", err)
		}
		return nil
	})
}

// assertMatchConditionsEvaluated checks that the API server could evaluate all match
// conditions. If it cannot, it skips the webhook and reports the error only in this metric.
func (s *restartTest) assertMatchConditionsEvaluated(t *testing.T) {
	t.Helper()
	raw, err := s.clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "apiserver_admission_match_condition_evaluation_errors_total{") {
			t.Error(line)
		}
	}
}

// approveExtension extends a workload by a day: ada requests the extension and an approver
// approves it.
func (s *restartTest) approveExtension(t *testing.T, object client.Object) {
	t.Helper()
	w := s.asWorkload(t, object)
	s.runSluice(t, "extend", strings.ToLower(w.kind)+"/"+w.GetName(), "-n", s.ns, "--by", "24h", "--reason", "two epochs are left", "--wait", "0s")
	var extensions v1alpha1.ExtensionList
	if err := s.adminClient.List(t.Context(), &extensions, client.InNamespace(s.ns)); err != nil {
		t.Fatal(err)
	}
	for _, e := range extensions.Items {
		if e.Spec.Target.Kind == w.kind && e.Spec.Target.Name == w.GetName() {
			s.runSluice(t, "approve", e.Name, "-n", s.ns)
			return
		}
	}
	t.Fatalf("no extension requested for %s %s", w.kind, w.GetName())
}

// resumeJob resumes a Job as ada.
func (s *restartTest) resumeJob(ctx context.Context, name string) error {
	kind, body := mergePatch(`{"spec":{"suspend":false}}`)
	_, err := s.ada.BatchV1().Jobs(s.ns).Patch(ctx, name, kind, body, metav1.PatchOptions{})
	return err
}

// kubectlAsUser runs kubectl in the namespace as ada; the error contains its output.
func (s *restartTest) kubectlAsUser(t *testing.T, args ...string) error {
	t.Helper()
	out, err := s.kubectl(t.Context(), append([]string{"--as", ada, "-n", s.ns}, args...)...)
	if err != nil {
		return errors.New(out)
	}
	return nil
}
