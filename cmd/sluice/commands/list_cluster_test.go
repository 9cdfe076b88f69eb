// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/submission"
	"sluice.dev/test/clustertest"
)

// parseTyped decodes an object.
func parseTyped[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// On a real API server, with the rights of a user of one namespace who may list neither projects nor nodes: list,
// get, stop, start, clone, delete and the completion of names.
func TestWorkloadCommandsInCluster(t *testing.T) {
	c := clustertest.Start(t)
	namespace := clustertest.Namespace(t, c)
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const template = `template: {metadata: {labels: {app: notebook}}, spec: {initContainers: [{name: fetch, image: "busybox:1"}], containers: [{name: main, image: "quay.io/jupyter/base-notebook:1"}]}}`
	labels := map[string]string{submission.LabelInstance: "notebook", v1alpha1.LabelManagedBy: submission.ManagedBy}
	service := parseTyped[corev1.Service](t, "{metadata: {name: notebook}, spec: {selector: {app: notebook}, ports: [{port: 80}]}}")
	service.Labels = labels
	foreign := parseTyped[corev1.Service](t, "{metadata: {name: foreign}, spec: {selector: {app: notebook}, ports: [{port: 80}]}}")
	binding := parseTyped[rbacv1.RoleBinding](t, `{metadata: {name: anna}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit},
		subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: anna}]}`)
	claim := parseTyped[corev1.PersistentVolumeClaim](t, "{metadata: {name: results}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
	for _, object := range []client.Object{
		binding, service, foreign, claim,
		parseTyped[appsv1.Deployment](t, "{metadata: {name: notebook}, spec: {replicas: 2, selector: {matchLabels: {app: notebook}}, "+template+"}}"),
		parseTyped[batchv1.Job](t, `{metadata: {name: training}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: pytorch}]}}}}`),
	} {
		object.SetNamespace(namespace)
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	asAnna, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range asAnna.AuthInfos {
		user.Impersonate = "anna"
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*asAnna, kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("KUBECACHEDIR", t.TempDir())
	sluice := func(args ...string) string {
		t.Helper()
		out, err := runCommand(t, append(args, "-n", namespace)...)
		if err != nil {
			t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	rows := func() map[string]workloadRow {
		var listed struct {
			Workloads []workloadRow `json:"workloads"`
		}
		out := sluice("list", "-o", "json")
		if err := json.Unmarshal([]byte(out), &listed); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		found := map[string]workloadRow{}
		for _, row := range listed.Workloads {
			found[row.Kind+"/"+row.Name] = row
		}
		return found
	}

	clustertest.Eventually(t, func() error {
		found := rows()
		notebook, training := found["Deployment/notebook"], found["Job/training"]
		if len(found) != 2 || notebook.Pods != 2 || training.Pods != 1 || notebook.Status == "" || training.Status == "" {
			return fmt.Errorf("rows %+v", found)
		}
		if len(notebook.Addresses) != 2 {
			return fmt.Errorf("addresses %v", notebook.Addresses)
		}
		return nil
	})
	if out := sluice("get", "notebook"); !strings.Contains(out, "Kind:       Deployment\n") || strings.Count(out, "\nnotebook-") != 2 {
		t.Errorf("get printed\n%s", out)
	}
	if got := completionOf(t, "stop", "-n", namespace, ""); !strings.HasPrefix(got, "notebook\ntraining\n:4") {
		t.Errorf("names are completed with %q", got)
	}
	if got := completionOf(t, "stop", "notebook", "-n", namespace, ""); !strings.HasPrefix(got, "training\n:4") {
		t.Errorf("further names are completed with %q", got)
	}
	pods := strings.Split(completionOf(t, "logs", "notebook", "-n", namespace, "--pod", ""), "\n")
	if len(pods) < 3 || !strings.HasPrefix(pods[0], "notebook-") || !strings.HasPrefix(pods[1], "notebook-") || pods[2] != ":4" {
		t.Errorf("pods are completed with %q", pods)
	}
	for _, completion := range []struct{ args, want string }{
		{"logs notebook -n " + namespace + " --pod " + pods[0] + " -c", "fetch\nmain\n:4"},
		{"exec notebook -n " + namespace + " -c", "fetch\nmain\n:4"},
		{"exec nothing -n " + namespace + " -c", ":4"},
		{"exec -n " + namespace + " -c", ":4"},
		{"submit x -n " + namespace + " --pvc", "results:\n:6"},
		{"submit x -n " + namespace + " --service-type", "portforward\nnodeport\ningress\nloadbalancer\n:4"},
		{"preset create x -n " + namespace + " --pvc", "results:\n:6"},
	} {
		if got := completionOf(t, append(strings.Fields(completion.args), "")...); !strings.HasPrefix(got, completion.want) {
			t.Errorf("%s is completed with %q, want %q", completion.args, got, completion.want)
		}
	}
	if got := completionOf(t, "get", "-n", "kube-system", ""); !strings.HasPrefix(got, ":4") {
		t.Errorf("without the right to list, names are completed with %q", got)
	}
	if out, err := runCommand(t, "list", "-A"); err == nil || !strings.Contains(err.Error(), "name a namespace with -n") {
		t.Errorf("list -A: %v\n%s", err, out)
	}
	if out, err := runCommand(t, "get", "nothing", "-n", namespace); err == nil || !strings.Contains(err.Error(), "which has notebook, training") {
		t.Errorf("get nothing: %v\n%s", err, out)
	}

	deployment, job := &appsv1.Deployment{}, &batchv1.Job{}
	read := func(object client.Object, name string) {
		t.Helper()
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
			t.Fatal(err)
		}
	}
	out := sluice("stop", "notebook", "job/training")
	read(deployment, "notebook")
	read(job, "training")
	if *deployment.Spec.Replicas != 0 || deployment.Annotations[v1alpha1.AnnotationReplicasBefore] != "2" || !*job.Spec.Suspend {
		t.Errorf("stop printed\n%s\nand left %d replicas, %v", out, *deployment.Spec.Replicas, job.Spec.Suspend)
	}
	if found := rows(); found["Deployment/notebook"].Status != "Stopped" || found["Job/training"].Reason != "stopped by a user" {
		t.Errorf("after the stop: %+v", found)
	}
	if out := sluice("stop", "notebook"); out != "deployment/notebook is stopped already\n" {
		t.Errorf("a second stop printed %q", out)
	}
	if out := sluice("start", "notebook", "training"); out != "deployment/notebook started\njob/training started\n" {
		t.Errorf("start printed %q", out)
	}
	read(deployment, "notebook")
	read(job, "training")
	if *deployment.Spec.Replicas != 2 || *job.Spec.Suspend {
		t.Errorf("start left %d replicas, suspend %v", *deployment.Spec.Replicas, *job.Spec.Suspend)
	}

	for _, name := range []string{"notebook", "training"} {
		if out := sluice("clone", name, name+"-2", "--dry-run=server"); !strings.HasSuffix(out, "/"+name+"-2 would be created in namespace "+namespace+"\n") {
			t.Errorf("clone printed %q", out)
		}
		if out := sluice("clone", name, name+"-2"); !strings.Contains(out, "sluice logs "+name+"-2 -n "+namespace) {
			t.Errorf("clone printed %q", out)
		}
	}
	read(deployment, "notebook-2")
	if got := deployment.Spec.Selector.MatchLabels; got["app"] != "notebook-2" || got[submission.LabelInstance] != "notebook-2" {
		t.Errorf("the copy selects %v", got)
	}
	clustertest.Eventually(t, func() error {
		found := rows()
		if found["Deployment/notebook"].Pods != 2 || found["Deployment/notebook-2"].Pods != 2 || found["Job/training-2"].Pods != 1 {
			return fmt.Errorf("rows %+v", found)
		}
		return nil
	})

	out = sluice("delete", "notebook", "training")
	if want := "deployment/notebook deleted\nservice/notebook deleted\njob/training deleted\n"; out != want {
		t.Errorf("delete printed %q, want %q", out, want)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(service), service); !apierrors.IsNotFound(err) {
		t.Errorf("the Service that submit made is still there: %v", err)
	}
	read(foreign, "foreign")
	clustertest.Eventually(t, func() error {
		if found := rows(); len(found) != 2 {
			return fmt.Errorf("rows %+v", found)
		}
		return nil
	})
	if _, err := runCommand(t, "delete", "notebook", "-n", namespace); err == nil {
		t.Error("a workload was deleted twice")
	}
}

// A command that names several workloads changes none if one of them does not exist.
func TestNoWorkloadIsChangedBeforeAllAreFound(t *testing.T) {
	c := clustertest.Start(t)
	namespace := clustertest.Namespace(t, c)
	admin, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	job := parseTyped[batchv1.Job](t, `{metadata: {name: training}, spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}}}`)
	job.ObjectMeta = metav1.ObjectMeta{Name: "training", Namespace: namespace}
	if err := admin.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root := NewRootCommand()
	root.SetArgs([]string{"delete", "training", "trainin", "-n", namespace, "--kubeconfig", c.Kubeconfig()})
	root.SetOut(&out)
	err = root.ExecuteContext(t.Context())
	if err == nil || out.String() != "" {
		t.Errorf("delete: %v, %q", err, out.String())
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || job.DeletionTimestamp != nil {
		t.Errorf("the Job is gone: %v", err)
	}
}
