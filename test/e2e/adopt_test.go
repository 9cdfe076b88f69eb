// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

var annotateCommand = regexp.MustCompile(`(?m)^#   kubectl (annotate namespace \S+ sluice\.dev/adopt-by=\S+)$`)

// A namespace whose pods got their GPUs before Sluice governed it is adopted by the commands and the YAML that
// `sluice adopt` prints. Its pods run on, with the same UIDs.
func TestAdoptNamespaceWithRunningPods(t *testing.T) {
	s := newDedicatedCluster(t)
	s.createDepartment(t, "adoption", newPoolQuota("dgx", "4", "8"))
	before := s.runUngovernedDeployment(t, "old-lab", 2)

	owner := `Dr. Ines "I: A" Almeida=ines.almeida@example.org,ines`
	out, err := exec.CommandContext(t.Context(), s.binary, "adopt", "--dir", s.dir,
		"--namespace", "old-lab", "--department", "adoption", "--owner", owner).CombinedOutput()
	if err != nil {
		t.Fatalf("sluice adopt: %v\n%s", err, out)
	}
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "old-lab"}}
	if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(project), project); client.IgnoreNotFound(err) != nil || err == nil {
		t.Fatalf("the project exists without --apply: %v", err)
	}
	command := annotateCommand.FindStringSubmatch(string(out))
	if command == nil || strings.Contains(string(out), "PROBLEM") {
		t.Fatalf("no command, or a problem, in\n%s", out)
	}
	s.mustKubectl(t, strings.Fields(command[1])...)
	file := filepath.Join(t.TempDir(), "project.yaml")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	s.mustKubectl(t, "create", "-f", file)
	eventuallyLong(t, func() error {
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(project), project); err != nil {
			return err
		}
		if err := checkCondition(project.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, ""); err != nil {
			return err
		}
		return checkCondition(project.Status.Conditions, v1alpha1.ConditionUncounted, metav1.ConditionTrue, "")
	})
	quota := project.Spec.NodePools
	if len(quota) != 1 || quota[0].Name != "dgx" || quota[0].GPU.Guaranteed.String() != "2" || quota[0].GPU.Limit.String() != "2" {
		t.Errorf("quota = %+v, want 2 of 2 GPUs in dgx", quota)
	}
	if got := project.Spec.Owners[0]; got.Name != `Dr. Ines "I: A" Almeida` || got.User != "ines" {
		t.Errorf("owner = %+v", got)
	}
	namespace := newNamespace("old-lab")
	if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil || namespace.Labels[v1alpha1.LabelProject] != "old-lab" {
		t.Errorf("the namespace is not governed: %v, %v", namespace.Labels, err)
	}
	for name, uid := range before {
		pod := &corev1.Pod{}
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: "old-lab", Name: name}, pod); err != nil ||
			pod.UID != uid || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			t.Errorf("pod %s after the adoption: %v, %s %s", name, err, pod.UID, pod.Status.Phase)
		}
	}
	// The same again: the namespace has its project.
	out, err = exec.CommandContext(t.Context(), s.binary, "adopt", "--dir", s.dir,
		"--namespace", "old-lab", "--department", "adoption", "--owner", owner).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "project old-lab has it already") {
		t.Errorf("a second adoption: %v\n%s", err, out)
	}
}

// With --apply the command hands over the namespaces and creates the projects, or changes nothing if one does not fit.
func TestAdoptApply(t *testing.T) {
	s := newDedicatedCluster(t)
	s.createDepartment(t, "adoption", newPoolQuota("dgx", "2", "2"))
	s.runUngovernedDeployment(t, "old-a", 1)
	s.runUngovernedDeployment(t, "old-b", 2)
	adopt := func(namespaces string) (string, error) {
		out, err := exec.CommandContext(t.Context(), s.binary, "adopt", "--dir", s.dir, "--namespace", namespaces,
			"--department", "adoption", "--owner", "Owner=owner@example.org", "--apply").CombinedOutput()
		return string(out), err
	}
	out, err := adopt("old-a,old-b")
	if err == nil || !strings.Contains(out, "nothing was changed") || !strings.Contains(out, "project old-b: spec.nodePools[0].gpu") {
		t.Errorf("two projects that do not fit together: %v\n%s", err, out)
	}
	namespace := newNamespace("old-a")
	if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil || namespace.Annotations[v1alpha1.AnnotationAdoptBy] != "" {
		t.Errorf("the namespace was annotated: %v, %v", namespace.Annotations, err)
	}
	if out, err := adopt("old-a"); err != nil {
		t.Fatalf("sluice adopt --apply: %v\n%s", err, out)
	}
	eventuallyLong(t, func() error {
		project := &v1alpha1.Project{}
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Name: "old-a"}, project); err != nil {
			return err
		}
		return checkCondition(project.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	})
}

// runUngovernedDeployment runs a Deployment with one GPU for each pod in a new namespace, and returns the UIDs of its
// pods. While they are created the namespace is exempt; a cluster without Sluice, or with gpuPodsOutside: Warn, admits
// them as well.
func (s *sluiceCluster) runUngovernedDeployment(t *testing.T, namespace string, replicas int32) map[string]types.UID {
	t.Helper()
	exempt := func(names ...string) error {
		text, err := json.Marshal(map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "AdmissionParameters", "metadata": map[string]any{"name": "sluice"},
			"spec": map[string]any{"exemptNamespaces": append([]string{}, names...)},
		})
		if err != nil {
			return err
		}
		parameters := &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}}
		return s.adminClient.Patch(t.Context(), parameters, client.RawPatch(types.ApplyPatchType, text),
			client.FieldOwner("test-"+namespace), client.ForceOwnership)
	}
	if err := exempt(namespace); err != nil {
		t.Fatal(err)
	}
	if err := s.adminClient.Create(t.Context(), newNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "serve"}
	if err := s.adminClient.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "serve"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{v1alpha1.LabelNodePool: "dgx"},
					Tolerations:  []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{Name: "main", Image: "any", Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1")},
					}}},
				},
			},
		},
	}); err != nil {
		t.Fatal(err)
	}
	uids := map[string]types.UID{}
	eventuallyLong(t, func() error {
		var pods corev1.PodList
		if err := s.adminClient.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		clear(uids)
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				uids[pods.Items[i].Name] = pods.Items[i].UID
			}
		}
		if len(uids) != int(replicas) {
			return fmt.Errorf("%d of %d pods run", len(uids), replicas)
		}
		return nil
	})
	if err := exempt(); err != nil {
		t.Fatal(err)
	}
	return uids
}
