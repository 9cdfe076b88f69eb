// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

func TestProjectNamespaceLifecycle(t *testing.T) {
	t.Parallel()
	p := create(t, newProject("created"))
	waitForProjectReady(t, p)
	ns := newNamespace("created")
	if err := refresh(t, ns); err != nil {
		t.Fatal(err)
	}
	if ns.Labels[v1alpha1.LabelProject] != "created" || ns.Labels[v1alpha1.LabelDepartment] != "h2-students" {
		t.Errorf("labels = %v", ns.Labels)
	}
	want := &v1alpha1.ProjectNamespace{Name: "created", UID: ns.UID, Origin: v1alpha1.NamespaceCreated}
	eventually(t, func() error { // another controller writes the phase
		if err := refresh(t, p); err != nil {
			return err
		}
		if got := p.Status.Namespace; got == nil || *got != *want || p.Status.Phase != v1alpha1.ProjectActive {
			return unexpectedState("Active, with the namespace created", p.Status)
		}
		return nil
	})
	deleteAndWait(t, p)
	if err := checkDeleted(t.Context(), ns); err != nil {
		t.Errorf("after the deletion of the project: %v", err)
	}
}

// lifecycleClient returns a client with the identity and rights of lifecycle.
func lifecycleClient(t *testing.T) client.Client {
	t.Helper()
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:sluice-system:lifecycle"}
	lifecycle, err := client.New(config, client.Options{Scheme: sharedCluster.adminClient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return lifecycle
}

// Lifecycle restores the labels of a namespace. The admission policies allow only lifecycle
// to change them, so the test changes them with its identity.
func TestProjectNamespaceLabelsRestored(t *testing.T) {
	t.Parallel()
	waitForProjectReady(t, create(t, newProject("kept")))
	lifecycle := lifecycleClient(t)
	for _, forged := range []string{`null`, `"thesis-mueller"`} {
		ns := newNamespace("kept")
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"sluice.dev/project":`+forged+`}}}`))
		if err := lifecycle.Patch(t.Context(), ns, patch); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if err := refresh(t, ns); err != nil {
				return err
			}
			if got := ns.Labels[v1alpha1.LabelProject]; got != "kept" {
				return fmt.Errorf("label = %q after it was set to %s", got, forged)
			}
			return nil
		})
	}
}

func TestAdoptedNamespaceOutlivesItsProject(t *testing.T) {
	t.Parallel()
	ns := create(t, newNamespace("adopted-lab", v1alpha1.AnnotationAdoptBy, "adopter"))
	p := create(t, newProject("adopter", inNamespace("adopted-lab")))
	waitForProjectReady(t, p)
	if got := p.Status.Namespace; got == nil || got.Origin != v1alpha1.NamespaceAdopted || got.UID != ns.UID {
		t.Errorf("status.namespace = %+v", got)
	}
	deleteAndWait(t, p)
	if err := refresh(t, ns); err != nil {
		t.Fatalf("the adopted namespace: %v", err)
	}
	for _, remaining := range []string{ns.Labels[v1alpha1.LabelProject], ns.Labels[v1alpha1.LabelDepartment], ns.Annotations[v1alpha1.AnnotationAdoptBy]} {
		if remaining != "" {
			t.Errorf("%q remains on the namespace: %v %v", remaining, ns.Labels, ns.Annotations)
		}
	}
	if !ns.DeletionTimestamp.IsZero() {
		t.Error("the adopted namespace is being deleted")
	}
}

func TestNamespaceWithVolumesKept(t *testing.T) {
	t.Parallel()
	p := create(t, newProject("volumes"))
	waitForProjectReady(t, p)
	claim := create(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "volumes"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	})
	deleteAndWait(t, p)
	ns := newNamespace("volumes")
	t.Cleanup(func() { deleteAndWait(t, ns) })
	if err := refresh(t, claim); err != nil {
		t.Fatalf("the volume claim: %v", err)
	}
	if err := refresh(t, ns); err != nil || !ns.DeletionTimestamp.IsZero() || ns.Labels[v1alpha1.LabelProject] != "" {
		t.Errorf("namespace = %+v, %v; want the namespace without a label", ns.ObjectMeta, err)
	}
	eventually(t, func() error { return checkEvent(t, "volumes", "NamespaceKept") })
}

func checkEvent(t *testing.T, about, reason string) error {
	var events corev1.EventList
	if err := sharedCluster.adminClient.List(t.Context(), &events); err != nil {
		return err
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.InvolvedObject.Name == about && e.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("no event %s about %s", reason, about)
}

// If several projects name one namespace at the same time, one gets it and the others report
// the conflict.
func TestNamespaceHasOneProject(t *testing.T) {
	t.Parallel()
	type outcome struct {
		project *v1alpha1.Project
		err     error
	}
	outcomes := make(chan outcome)
	for _, name := range []string{"contender-a", "contender-b", "contender-c"} {
		go func() {
			p := newProject(name, inNamespace("contested"))
			outcomes <- outcome{p, sharedCluster.adminClient.Create(t.Context(), p)}
		}()
	}
	var created []*v1alpha1.Project
	for range 3 {
		if o := <-outcomes; o.err == nil {
			created = append(created, o.project)
			t.Cleanup(func() { deleteAndWait(t, o.project) })
		}
	}
	eventually(t, func() error {
		ready := 0
		for _, p := range created {
			if err := refresh(t, p); err != nil {
				return err
			}
			if checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "") == nil {
				ready++
			} else if err := checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, tenancy.ReasonNamespaceTaken); err != nil {
				return err
			}
		}
		if ready != 1 {
			return fmt.Errorf("%d of %d projects have the namespace, want 1", ready, len(created))
		}
		return nil
	})
}

func TestDepartmentCountsItsProjects(t *testing.T) {
	t.Parallel()
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "h2-research"}}
	counts := func(want int32) {
		t.Helper()
		eventually(t, func() error {
			if err := refresh(t, department); err != nil {
				return err
			}
			if got := department.Status.Projects; got != want {
				return fmt.Errorf("projects = %d, want %d", got, want)
			}
			return nil
		})
	}
	counts(1)
	p := create(t, newProject("moved"))
	waitForProjectReady(t, p)
	before := p.DeepCopy()
	p.Spec.Department, p.Spec.NodePools[0].Name = "h2-research", "dgx"
	if err := sharedCluster.adminClient.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	counts(2)
	eventually(t, func() error {
		ns := newNamespace("moved")
		if err := refresh(t, ns); err != nil {
			return err
		}
		if got := ns.Labels[v1alpha1.LabelDepartment]; got != "h2-research" {
			return fmt.Errorf("the namespace's department = %q", got)
		}
		return nil
	})
	deleteAndWait(t, p)
	counts(1)
}

// namespaceWithRunningPod creates a namespace that a project of the same name may adopt, and
// a running pod with that fraction of a GPU of node pool dgx-mig.
func namespaceWithRunningPod(t *testing.T, name, fraction string) (*corev1.Namespace, *corev1.Pod) {
	t.Helper()
	ns := create(t, newNamespace(name, v1alpha1.AnnotationAdoptBy, name))
	pod := newPod(ns.Name, "before", func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{v1alpha1.LabelNodePool: "dgx-mig"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
	})
	// A new namespace accepts pods once its default service account exists.
	eventually(t, func() error {
		return client.IgnoreAlreadyExists(sharedCluster.adminClient.Create(t.Context(), pod.DeepCopy()))
	})
	t.Cleanup(func() { deleteAndWait(t, pod) })
	sharedCluster.waitForBinding(t, pod, "dgx-mig", true)
	// Users cannot create such a pod, but one could exist before the adoption.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"gpu-fraction":"`+fraction+`"}}}`))
	if err := sharedCluster.adminClient.Patch(t.Context(), pod, patch); err != nil {
		t.Fatal(err)
	}
	return ns, pod
}

// Adoption lowers the quota by what running pods hold, and restores it when they end.
func TestAdoptionCountsRunningPods(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	ns, pod := namespaceWithRunningPod(t, "adopted-part", "0.25")
	p := create(t, newProject(ns.Name, withQuota("500m", "1")))
	waitForProjectReady(t, p)
	waitForQuota(t, ns.Name, "250", "750")
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		if use := p.Status.NodePools; len(use) != 1 || use[0].Uncounted.String() != "250m" || use[0].Limit.String() != "1" {
			return unexpectedState("250m of a limit of 1 are uncounted", use)
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionUncounted, metav1.ConditionTrue, v1alpha1.ReasonPodsUncounted)
	})
	message := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionUncounted).Message
	if want := "lower by what they hold, 0.25 of a GPU of node pool dgx-mig"; !strings.Contains(message, want) {
		t.Errorf("Uncounted has the message %q, want %q", message, want)
	}

	deleteAndWait(t, pod)
	eventuallyLong(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionUncounted, metav1.ConditionFalse, "AllCounted")
	})
	waitForQuota(t, ns.Name, "500", "1000")
	waitForQuotaApplied(t, p)
}

// If running pods hold more than the project's limit, its namespace is not governed until
// enough of them have ended.
func TestAdoptionWaitsForQuota(t *testing.T) {
	t.Parallel()
	requireLargeDepartment(t)
	ns, pod := namespaceWithRunningPod(t, "adopted-full", "0.75")
	p := create(t, newProject(ns.Name, withQuota("0", "500m")))
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied, metav1.ConditionFalse, v1alpha1.ReasonUncountedPodsExceedLimit)
	})
	message := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionQuotaApplied).Message
	if want := "before: they hold 0.75 of a GPU of node pool dgx-mig, and the project may have 0.5 of a GPU there"; !strings.Contains(message, want) {
		t.Errorf("QuotaApplied has the message %q, want %q", message, want)
	}
	if err := refresh(t, ns); err != nil || ns.Labels[v1alpha1.LabelProject] != "" {
		t.Errorf("the namespace is governed: %v, %v", ns.Labels, err)
	}

	deleteAndWait(t, pod)
	eventuallyLong(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	})
	waitForQuotaApplied(t, p)
	waitForQuota(t, ns.Name, "0", "500")
	if err := refresh(t, ns); err != nil || ns.Labels[v1alpha1.LabelProject] != p.Name {
		t.Errorf("the namespace is not governed: %v, %v", ns.Labels, err)
	}
}
