// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"

	"sluice.dev/test/clustertest"
)

// A member of a project creates each sample of manifests/samples/workloads as it is, but for its namespace; its Jobs complete and
// its Deployments become available. Not shown here: the images, an Ingress controller, the metrics of the autoscaler, the
// contents of S3 and Git. TestWorkloadSamples in cmd/sluice/commands evaluates the PyTorchJob, whose operator the cluster lacks.
func TestWorkloadSamplesRun(t *testing.T) {
	t.Parallel()
	const whole, slices, user = "samples-whole", "samples-slices", "samples-anna@example.org"
	s := sharedCluster
	s.createDepartment(t, whole, newPoolQuota("dgx", "1", "1"))
	s.createForTest(t, newServiceDepartment(slices, newPoolQuota("dgx-mig", "500m", "1")))
	members := map[string]v1alpha1.Role{user: v1alpha1.RoleL1Researcher}
	s.createProjectWithMembers(t, whole, whole, members, newPoolQuota("dgx", "1", "1"))
	s.createProjectWithMembers(t, slices, slices, members, newPoolQuota("dgx-mig", "500m", "1"))
	s.createForTest(t, newSampleVolume(slices, "notebook-home"))
	namespaces := strings.NewReplacer("namespace: protein-folding", "namespace: "+whole,
		"namespace: course-ml", "namespace: "+slices, "namespace: thesis-mueller", "namespace: "+slices)
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	for file, largestJob := range map[string]int32{
		"notebook.yaml": 0, "training-one-gpu.yaml": 1, "training-half-gpu.yaml": 1, "array-of-20.yaml": 20,
		"hyperparameter-search.yaml": 6, "inference.yaml": 0, "data-from-s3-and-git.yaml": 1,
	} {
		t.Run(strings.TrimSuffix(file, ".yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(root, "manifests", "samples", "workloads", file))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), file)
			documents := strings.Split(namespaces.Replace(string(raw)), "\n---\n")
			objects := make([]*unstructured.Unstructured, len(documents))
			for i, document := range documents {
				objects[i] = &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(document), &objects[i].Object); err != nil {
					t.Fatal(err)
				}
				if objects[i].GetKind() == "Job" { // on the simulated nodes, it would run until it is deleted
					if err := unstructured.SetNestedField(objects[i].Object, "1s", "spec", "template", "metadata", "annotations", "sim.sluice.dev/run-for"); err != nil {
						t.Fatal(err)
					}
				}
				changed, err := yaml.Marshal(objects[i].Object)
				if err != nil {
					t.Fatal(err)
				}
				documents[i] = string(changed)
			}
			if err := os.WriteFile(path, []byte(strings.Join(documents, "---\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_, _ = s.kubectl(context.WithoutCancel(t.Context()), "delete", "--ignore-not-found", "--wait=false", "-f", path)
			})
			s.mustKubectl(t, "create", "--as", user, "-f", path)
			for _, object := range objects {
				switch object.GetKind() {
				case "Job":
					s.waitForJob(t, object, largestJob)
				case "Deployment":
					s.waitForDeployment(t, object, 1)
				}
			}
			if file == "inference.yaml" { // as many replicas as the autoscaler may set
				s.mustKubectl(t, "scale", "--as", user, "--replicas=4", "-n", slices, "deployment/inference")
				s.waitForDeployment(t, objects[0], 4)
			}
		})
	}
}

// newServiceDepartment returns a department without time limits whose projects may have Ingresses.
func newServiceDepartment(name string, quotas ...v1alpha1.PoolQuota) *v1alpha1.Department {
	return &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.DepartmentSpec{
			NodePools: quotas,
			Services:  v1alpha1.ServiceTerms{Types: []v1alpha1.ServiceType{"ClusterIP"}, IngressHosts: []v1alpha1.IngressHost{"*"}},
		},
	}
}

// newSampleVolume returns a volume for a claim: the embedded cluster provisions none.
func newSampleVolume(namespace, claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas.example.org", Path: "/exports"}},
		},
	}
}

// waitForJob waits until as many pods of a Job have succeeded as it has completions.
func (s *sluiceCluster) waitForJob(t *testing.T, object client.Object, completions int32) {
	t.Helper()
	eventuallyLong(t, func() error {
		job := &batchv1.Job{}
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), job); err != nil {
			return err
		}
		if ptr.Deref(job.Spec.Completions, 1) != completions || job.Status.Succeeded != completions {
			return unexpectedState("all pods of the Job succeeded", job.Status)
		}
		return nil
	})
}

// waitForDeployment waits until a Deployment has a number of available pods.
func (s *sluiceCluster) waitForDeployment(t *testing.T, object client.Object, replicas int32) {
	t.Helper()
	eventuallyLong(t, func() error {
		deployment := &appsv1.Deployment{}
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), deployment); err != nil {
			return err
		}
		if deployment.Status.AvailableReplicas != replicas {
			return unexpectedState("the pods of the Deployment are available", deployment.Status)
		}
		return nil
	})
}
