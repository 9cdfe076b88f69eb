// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

func TestProjectGetsItsNamespaceAndTakesItAway(t *testing.T) {
	p := create(t, project("made"))
	awaitReady(t, p)
	ns := namespace("made")
	if err := get(t, ns); err != nil {
		t.Fatal(err)
	}
	if ns.Labels[v1alpha1.LabelProject] != "made" || ns.Labels[v1alpha1.LabelDepartment] != "h2-students" {
		t.Errorf("labels = %v", ns.Labels)
	}
	want := &v1alpha1.ProjectNamespace{Name: "made", UID: ns.UID, Origin: v1alpha1.NamespaceMade}
	if got := p.Status.Namespace; got == nil || *got != *want || p.Status.Phase != v1alpha1.ProjectActive {
		t.Errorf("status = %+v, want %+v and Active", p.Status, want)
	}
	remove(t, p)
	if err := gone(t.Context(), ns); err != nil {
		t.Errorf("after the project went: %v", err)
	}
}

// asLifecycle acts in lifecycle's name, with its rights.
func asLifecycle(t *testing.T) client.Client {
	t.Helper()
	config := rest.CopyConfig(shared.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:sluice-system:lifecycle"}
	lifecycle, err := client.New(config, client.Options{Scheme: shared.admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return lifecycle
}

// Labels that are lost or wrong come back as they were. The doors let nobody but
// lifecycle change them, so it is lifecycle's name in which they are lost here.
func TestLabelsOfAProjectsNamespaceAreKept(t *testing.T) {
	awaitReady(t, create(t, project("kept")))
	lifecycle := asLifecycle(t)
	for _, forged := range []string{`null`, `"thesis-mueller"`} {
		ns := namespace("kept")
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"sluice.dev/project":`+forged+`}}}`))
		if err := lifecycle.Patch(t.Context(), ns, patch); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if err := get(t, ns); err != nil {
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
	ns := create(t, namespace("lab", v1alpha1.AnnotationAdoptBy, "adopter"))
	p := create(t, project("adopter", in("lab")))
	awaitReady(t, p)
	if got := p.Status.Namespace; got == nil || got.Origin != v1alpha1.NamespaceAdopted || got.UID != ns.UID {
		t.Errorf("status.namespace = %+v", got)
	}
	remove(t, p)
	if err := get(t, ns); err != nil {
		t.Fatalf("the adopted namespace: %v", err)
	}
	for _, left := range []string{ns.Labels[v1alpha1.LabelProject], ns.Labels[v1alpha1.LabelDepartment], ns.Annotations[v1alpha1.AnnotationAdoptBy]} {
		if left != "" {
			t.Errorf("%q was left on the namespace: %v %v", left, ns.Labels, ns.Annotations)
		}
	}
	if !ns.DeletionTimestamp.IsZero() {
		t.Error("the adopted namespace is being deleted")
	}
}

func TestNamespaceWithVolumesStays(t *testing.T) {
	p := create(t, project("volumes"))
	awaitReady(t, p)
	claim := create(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "volumes"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	})
	remove(t, p)
	ns := namespace("volumes")
	t.Cleanup(func() { remove(t, ns) })
	if err := get(t, claim); err != nil {
		t.Fatalf("the volume claim: %v", err)
	}
	if err := get(t, ns); err != nil || !ns.DeletionTimestamp.IsZero() || ns.Labels[v1alpha1.LabelProject] != "" {
		t.Errorf("namespace = %+v, %v; want it to stay without a label", ns.ObjectMeta, err)
	}
	eventually(t, func() error { return hasEvent(t, "volumes", "NamespaceKept") })
}

func hasEvent(t *testing.T, about, reason string) error {
	var events corev1.EventList
	if err := shared.admin.List(t.Context(), &events); err != nil {
		return err
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.InvolvedObject.Name == about && e.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("no event %s about %s", reason, about)
}

// Two that name one namespace at the same instant: one has it, the other is told.
func TestOneNamespaceHasOneProject(t *testing.T) {
	type outcome struct {
		project *v1alpha1.Project
		err     error
	}
	outcomes := make(chan outcome)
	for _, name := range []string{"rival-a", "rival-b", "rival-c"} {
		go func() {
			p := project(name, in("contested"))
			outcomes <- outcome{p, shared.admin.Create(t.Context(), p)}
		}()
	}
	var made []*v1alpha1.Project
	for range 3 {
		if o := <-outcomes; o.err == nil {
			made = append(made, o.project)
			t.Cleanup(func() { remove(t, o.project) })
		}
	}
	eventually(t, func() error {
		ready := 0
		for _, p := range made {
			if err := get(t, p); err != nil {
				return err
			}
			if hasCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "") == nil {
				ready++
			} else if err := hasCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, tenancy.ReasonNamespaceTaken); err != nil {
				return err
			}
		}
		if ready != 1 {
			return fmt.Errorf("%d of %d projects have the namespace, want 1", ready, len(made))
		}
		return nil
	})
}

func TestDepartmentCountsItsProjects(t *testing.T) {
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "h2-research"}}
	counts := func(want int32) {
		t.Helper()
		eventually(t, func() error {
			if err := get(t, department); err != nil {
				return err
			}
			if got := department.Status.Projects; got != want {
				return fmt.Errorf("projects = %d, want %d", got, want)
			}
			return nil
		})
	}
	counts(1)
	p := create(t, project("moved"))
	awaitReady(t, p)
	before := p.DeepCopy()
	p.Spec.Department, p.Spec.NodePools[0].Name = "h2-research", "dgx"
	if err := shared.admin.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	counts(2)
	eventually(t, func() error {
		ns := namespace("moved")
		if err := get(t, ns); err != nil {
			return err
		}
		if got := ns.Labels[v1alpha1.LabelDepartment]; got != "h2-research" {
			return fmt.Errorf("the namespace's department = %q", got)
		}
		return nil
	})
	remove(t, p)
	counts(1)
}
