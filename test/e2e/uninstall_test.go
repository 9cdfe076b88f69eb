// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"sluice.dev/api/v1alpha1"
)

// snapshot is every object of a cluster, by kind and name.
type snapshot map[string]*unstructured.Unstructured

// volatileResources change by themselves.
var volatileResources = []string{"events", "leases", "componentstatuses", "endpointslices", "endpoints"}

// takeSnapshot lists all objects of all kinds that can be listed.
func (s *sluiceCluster) takeSnapshot(t *testing.T) snapshot {
	t.Helper()
	reader, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := s.clientset.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all := snapshot{}
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(volatileResources, kind.Name) {
				continue
			}
			list, err := reader.Resource(version.WithResource(kind.Name)).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				all[fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())] = o
			}
		}
	}
	return all
}

// uninstalledKinds are the kinds of which the removal deletes objects.
var uninstalledKinds = []string{
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"ResourceQuota", "LimitRange", "ClusterRoleBinding", "RoleBinding",
}

// isComponent reports whether an object is a component, or one that Kubernetes' controllers made for it.
func isComponent(o *unstructured.Unstructured) bool {
	return slices.Contains([]string{v1alpha1.SystemNamespace, v1alpha1.AgentNamespace}, o.GetNamespace()) &&
		slices.Contains([]string{"Deployment", "ReplicaSet", "DaemonSet", "Pod", "ControllerRevision"}, o.GetKind()) &&
		slices.ContainsFunc([]string{"webhook", "lifecycle", "gpuagent"}, func(name string) bool {
			return o.GetName() == name || strings.HasPrefix(o.GetName(), name+"-")
		})
}

// isWrittenBySluice reports whether a line of an object may go: what the list of the documentation has.
func isWrittenBySluice(o *unstructured.Unstructured) bool {
	return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice || strings.HasPrefix(o.GetName(), "sluice") ||
		slices.ContainsFunc([]string{"webhook", "lifecycle", "gpuagent"}, func(name string) bool {
			return o.GetName() == name || strings.Contains(o.GetName(), name) ||
				slices.Contains([]string{v1alpha1.SystemNamespace, v1alpha1.AgentNamespace}, o.GetNamespace())
		})
}

// normalize removes what changes with every write, and what the removal takes away by the list of the documentation.
func normalize(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	for _, path := range [][]string{{"metadata", "resourceVersion"}, {"metadata", "managedFields"}, {"metadata", "generation"}} {
		unstructured.RemoveNestedField(o.Object, path...)
	}
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	switch o.GetKind() {
	case "Namespace":
		for _, key := range []string{v1alpha1.LabelProject, v1alpha1.LabelDepartment, v1alpha1.LabelQueued, v1alpha1.LabelPodSecurityEnforce, "pod-security.kubernetes.io/warn"} {
			delete(labels, key)
		}
	case "Pod":
		for _, key := range []string{v1alpha1.AnnotationEndsAt, v1alpha1.AnnotationPreemptAt} {
			delete(annotations, key)
		}
		unstructured.RemoveNestedField(o.Object, "status", "conditions")
	case "Node":
		for _, field := range []string{"capacity", "allocatable"} {
			all, _, _ := unstructured.NestedMap(o.Object, "status", field)
			maps.DeleteFunc(all, func(name string, _ any) bool { return strings.HasPrefix(name, string(v1alpha1.ResourceGPUMilli)) })
			_ = unstructured.SetNestedMap(o.Object, all, "status", field)
		}
		unstructured.RemoveNestedField(o.Object, "status", "conditions")
	case "GPUNode", "WorkloadClock", "Policy", "Notice", "UsageRecord", "Department", "NodePool", "Project":
		unstructured.RemoveNestedField(o.Object, "status") // as the components left it
		unstructured.RemoveNestedField(o.Object, "metadata", "finalizers")
	}
	if o.GetKind() != "Pod" && o.GetKind() != "Node" {
		unstructured.RemoveNestedField(o.Object, "status")
	}
	if len(labels) > 0 {
		o.SetLabels(labels)
	}
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	} else {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	return o.Object
}

// compare fails the test for each object that is not as before, but for the list of the documentation.
func (before snapshot) compare(t *testing.T, after snapshot) {
	t.Helper()
	for key, was := range before {
		is, found := after[key]
		switch {
		case !found && slices.Contains(uninstalledKinds, was.GetKind()) && isWrittenBySluice(was):
		case !found && isComponent(was):
		case !found:
			t.Errorf("%s is gone", key)
		case was.GetUID() != is.GetUID():
			t.Errorf("%s was created again", key)
		default:
			if diff := cmp.Diff(normalize(was), normalize(is)); diff != "" {
				t.Errorf("%s changed (-before +after):\n%s", key, diff)
			}
		}
	}
	for key, is := range after {
		if _, found := before[key]; !found && is.GetKind() != "Notice" {
			t.Errorf("%s is new", key)
		}
		switch is.GetKind() {
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			t.Errorf("%s is left", key)
		case "ResourceQuota":
			t.Errorf("%s can block pods", key)
		case "Namespace":
			if project := is.GetLabels()[v1alpha1.LabelProject]; project != "" {
				t.Errorf("%s is bound to project %s", key, project)
			}
		}
		for _, finalizer := range is.GetFinalizers() {
			if strings.HasPrefix(finalizer, v1alpha1.Group+"/") {
				t.Errorf("%s has the finalizer %s", key, finalizer)
			}
		}
	}
}

// suspendComponents stops Sluice's own processes, as if they were dead, until the test ends.
func (s *sluiceCluster) suspendComponents(t *testing.T) {
	t.Helper()
	report, err := s.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Components {
		if c.Name != "webhook" && c.Name != "lifecycle" && !strings.HasPrefix(c.Name, "gpuagent") {
			continue
		}
		if err := syscall.Kill(c.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(c.PID, syscall.SIGCONT) })
		eventuallyLong(t, func() error { return processStopped(c.PID) })
	}
}

// killedUninstall kills `sluice uninstall` after some lines of its output, and reports whether it ended before.
func (s *sluiceCluster) killedUninstall(t *testing.T, lines int) (ended bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, "uninstall", "--yes", "--dir", s.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewScanner(out)
	for range lines {
		if !read.Scan() || strings.HasPrefix(read.Text(), "What stays") {
			ended = true
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return ended
}

// `sluice uninstall` works while webhook, lifecycle and agents are dead, and after it was killed in each step. Every
// object is then as before but for the written list; pods run on, and new ones start. Guards invariants 2 and 8 of
// the design.
func TestUninstall(t *testing.T) {
	c := newPolicyTimeCluster(t)
	const ns = "leaving"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "2"))
	running, stopped := newDeploymentWorkload(ns, "stays", migDevice), newJobWorkload(ns, "stopped", migDevice)
	c.startWorkloads(t, stopped)
	c.advanceTime(t, 49*time.Hour)
	announced := c.waitForClock(t, stopped, "has all warnings", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	c.advanceTimeTo(t, announced.Deadline.At.Time)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 48*time.Hour, stopped)
	c.startWorkloads(t, running)
	c.eventuallyAfterStep(t, func() error {
		if pods := c.listPods(t, ns); len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
			return unexpectedState("only the pod of the Deployment runs", len(pods))
		}
		return nil
	})
	node := c.listPods(t, ns)[0].Spec.NodeName
	c.mustKubectl(t, "taint", "node", node, v1alpha1.TaintRepartitioning+"=:NoSchedule")
	c.suspendComponents(t)
	before := c.takeSnapshot(t)

	plan := c.runSluice(t, "uninstall", "--dry-run")
	before.requireUnchanged(t, c.takeSnapshot(t))
	for _, text := range []string{"delete ValidatingWebhookConfiguration", "remove the finalizer of Project " + ns, "delete ResourceQuota " + ns + "/", "What stays:"} {
		if !strings.Contains(plan, text) {
			t.Errorf("the plan lacks %q:\n%s", text, plan)
		}
	}
	lines := 1
	for ; !c.killedUninstall(t, lines); lines += 5 {
	}
	out := c.runSluice(t, "uninstall", "--yes")
	after := c.takeSnapshot(t)
	taints, _, _ := unstructured.NestedSlice(after["Node /"+node].Object, "spec", "taints")
	if slices.ContainsFunc(taints, func(taint any) bool { return taint.(map[string]any)["key"] == v1alpha1.TaintRepartitioning }) {
		t.Errorf("node %s has the taints %v", node, taints)
	}
	unstructured.RemoveNestedField(before["Node /"+node].Object, "spec", "taints")
	unstructured.RemoveNestedField(after["Node /"+node].Object, "spec", "taints")
	before.compare(t, after)
	if again := c.runSluice(t, "uninstall", "--yes"); !strings.HasPrefix(again, "What stays:") {
		t.Errorf("a further run changes something:\n%s", again)
	}

	// The printed command starts the stopped Job, and new pods start with and without a GPU.
	_, command, found := strings.Cut(out, "Job "+ns+"/stopped: ")
	if !found {
		t.Fatalf("the stopped Job is not listed:\n%s", out)
	}
	command, _, _ = strings.Cut(command, "\n")
	start := exec.CommandContext(t.Context(), "sh", "-c", command)
	start.Env = append(start.Environ(), "KUBECONFIG="+c.dir+"/kubeconfig")
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	for name, gpus := range map[string]string{"with-a-gpu": "1", "without-a-gpu": ""} {
		p := newPod(ns, name)
		if gpus != "" {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse(gpus)}
		}
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		if err := c.adminClient.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	c.eventuallyAfterStep(t, func() error {
		// The pod of the Job may wait for the MIG instance of the Deployment: the layout stays as it was.
		all, count := c.listPods(t, ns), 0
		for _, p := range all {
			if p.Status.Phase == corev1.PodRunning {
				count++
			}
		}
		if len(all) != 4 || count < 3 {
			return unexpectedState("four pods exist and three run", fmt.Sprint(len(all), count))
		}
		return nil
	})

	// With --delete-data Sluice's objects go, and nothing else does.
	if out, err := exec.CommandContext(t.Context(), c.binary, "uninstall", "--yes", "--delete-data", "--confirm", "another", "--dir", c.dir).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "is not the name of the cluster") {
		t.Errorf("another cluster's name: %v: %s", err, out)
	}
	var config struct {
		Clusters []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(c.mustKubectl(t, "config", "view", "-o", "json")), &config); err != nil {
		t.Fatal(err)
	}
	pods := c.listPods(t, ns)
	c.runSluice(t, "uninstall", "--yes", "--delete-data", "--confirm", config.Clusters[0].Name)
	if crds := c.mustKubectl(t, "get", "crds", "-o", "name"); strings.Contains(crds, "sluice.dev") {
		t.Errorf("kinds of Sluice are left: %s", crds)
	}
	for _, p := range pods {
		if is, err := c.clientset.CoreV1().Pods(ns).Get(t.Context(), p.Name, metav1.GetOptions{}); err != nil || is.UID != p.UID || is.DeletionTimestamp != nil {
			t.Errorf("pod %s is not as before: %v", p.Name, err)
		}
	}
}

// requireUnchanged fails the test unless every object exists later.
func (before snapshot) requireUnchanged(t *testing.T, after snapshot) {
	t.Helper()
	for key, was := range before {
		if is := after[key]; is == nil || is.GetUID() != was.GetUID() || !cmp.Equal(was.GetFinalizers(), is.GetFinalizers()) {
			t.Errorf("the plan alone changed %s", key)
		}
	}
}
