// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/submission"
	"sluice.dev/cmd/sluice/workloads"
)

// submittedMeta returns the metadata of an object that submit makes under the name nb.
func submittedMeta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: "nb", Labels: map[string]string{submission.LabelInstance: "nb", v1alpha1.LabelManagedBy: submission.ManagedBy},
	}
}

// The Service of a name goes with the last workload of the name: it is that of a Deployment, and not of a Job with its name.
func TestDeleteKeepsServiceOfNamesake(t *testing.T) {
	job := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: submittedMeta("thesis")}
	deployment := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: submittedMeta("thesis")}
	service := &corev1.Service{ObjectMeta: submittedMeta("thesis")}
	c := newFakeClient(t, interceptor.Funcs{}, job, deployment, service, &appsv1.Deployment{ObjectMeta: submittedMeta("other")})
	for _, step := range []struct {
		workload client.Object
		want     string
	}{
		{job, "job/nb deleted\nIts Services and Ingresses stay: deployment/nb has the same name\n"},
		{deployment, "deployment/nb deleted\nservice/nb deleted\n"},
	} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(step.workload)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := deleteWorkload(t.Context(), c, &workloads.Workload{Object: &unstructured.Unstructured{Object: content}}, &out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, out.String()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// submit takes no name that it gave to a workload of the other kind, whose Service would select the pods of both.
func TestSubmitRefusesNameOfNamesake(t *testing.T) {
	foreign := &appsv1.Deployment{ObjectMeta: submittedMeta("thesis")}
	foreign.Labels = nil // not made by submit
	for name, tt := range map[string]struct {
		existing client.Object
		dryRun   string
		want     string
	}{
		"a Deployment":       {&appsv1.Deployment{ObjectMeta: submittedMeta("thesis")}, dryRunNone, "deployment/nb exists in namespace thesis: choose another name"},
		"a server dry run":   {&appsv1.Deployment{ObjectMeta: submittedMeta("thesis")}, dryRunServer, "deployment/nb exists in namespace thesis"},
		"a client dry run":   {&appsv1.Deployment{ObjectMeta: submittedMeta("thesis")}, dryRunClient, ""},
		"another namespace":  {&appsv1.Deployment{ObjectMeta: submittedMeta("other")}, dryRunNone, ""},
		"not made by submit": {foreign, dryRunNone, ""},
		"a Job of this name": {&batchv1.Job{ObjectMeta: submittedMeta("thesis")}, dryRunNone, "job/nb exists in namespace thesis"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newSubmitCommand()
			cmd.SetContext(t.Context())
			cmd.SetOut(&strings.Builder{})
			c := &clusterClient{Client: newFakeClient(t, interceptor.Funcs{}, tt.existing), namespace: "thesis"}
			request := &submission.Request{Name: "nb", Image: "python:3.12"}
			err := submit(cmd, c, request, &creation{dryRun: tt.dryRun, output: &outputFlag{format: yamlFormat}})
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
}
