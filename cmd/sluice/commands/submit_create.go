// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/submission"
)

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRunModes = []string{dryRunNone, dryRunClient, dryRunServer}

// submit creates the objects of a request after the cluster has checked all of them.
func submit(cmd *cobra.Command, flags *workloadFlags, request *submission.Request, output *outputFlag, dryRun string) error {
	c, err := flags.connectForSubmission(cmd, dryRun)
	if err != nil {
		return err
	}
	request.Namespace = c.namespace
	objects, err := submission.Objects(request)
	if err != nil {
		return err
	}
	if dryRun == dryRunClient {
		return writeObjects(cmd.OutOrStdout(), output.format, objects)
	}
	if err := checkObjects(cmd.Context(), c, objects); err != nil {
		return err
	}
	if dryRun == dryRunNone {
		if err := createObjects(cmd.Context(), c, objects); err != nil {
			return err
		}
	}
	if output.isObject() {
		return writeObjects(cmd.OutOrStdout(), output.format, objects)
	}
	printSubmission(cmd.OutOrStdout(), request, objects, dryRun)
	return nil
}

// connectForSubmission returns a client for the namespace of the flags. Without a project, a dry run of the client needs no cluster.
func (f *workloadFlags) connectForSubmission(cmd *cobra.Command, dryRun string) (*clusterClient, error) {
	if dryRun == dryRunClient && f.project == "" {
		return &clusterClient{namespace: *f.Namespace}, nil
	}
	c, err := f.connect(cmd)
	if err != nil || f.project == "" {
		return c, err
	}
	c.namespace, err = projectNamespace(cmd.Context(), c, f.project)
	return c, err
}

// checkObjects lets the cluster check all objects, without creating any.
func checkObjects(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	var problems []error
	for _, object := range objects {
		if err := c.Create(ctx, object.DeepCopy(), client.DryRunAll, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
			problems = append(problems, explainRefusal(err, object))
		}
	}
	return errors.Join(problems...)
}

// createObjects creates all objects. If one fails, it deletes those before it, or says which stay.
func createObjects(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for i, object := range objects {
		created := object.DeepCopy()
		err := c.Create(ctx, created, client.FieldOwner(v1alpha1.FieldManagerCLI))
		if err == nil {
			object.SetUID(created.GetUID())
			continue
		}
		problems := []error{explainRefusal(err, object)}
		for _, earlier := range objects[:i] {
			uid := earlier.GetUID()
			// The deletion also goes ahead after Ctrl-C.
			err := c.Delete(context.WithoutCancel(ctx), earlier, client.Preconditions{UID: &uid}, client.PropagationPolicy("Background"))
			if client.IgnoreNotFound(err) != nil {
				problems = append(problems, fmt.Errorf("%s was created and stays: %w", nameOf(earlier), err))
			}
		}
		return errors.Join(problems...)
	}
	return nil
}

// wrapping is what the API server writes before the text of a webhook or of an admission policy.
var wrapping = regexp.MustCompile(`^(?:admission webhook "[^"]*" denied the request: |[^ ]+ "[^"]*" is forbidden: ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: )`)

var (
	// deniedPods is what the webhook writes before the refusal of a template: the object is named already.
	deniedPods = regexp.MustCompile(`pods of [^ \n]+ [^ \n]+ would be denied: `)
	// templatePath is the path of a template or of a field in it. A pod has the same fields without it.
	templatePath = regexp.MustCompile(`(?m)^spec\.template(?:: |\.spec\.|\.metadata\.)`)
)

// plainRefusal returns the text of a webhook or of an admission policy without what a user of submit does not see.
func plainRefusal(text string) string {
	return templatePath.ReplaceAllString(deniedPods.ReplaceAllString(text, ""), "")
}

// explainRefusal returns why the cluster does not accept an object, and what to do where that is known.
func explainRefusal(err error, object *unstructured.Unstructured) error {
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s exists in namespace %s: choose another name, or delete it with sluice delete %s",
			nameOf(object), object.GetNamespace(), object.GetName())
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster has no kind %s: ask its administrator to install the operator of %s", object.GetKind(), object.GroupVersionKind().Group)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %q does not exist: name your project with --project", object.GetNamespace())
	}
	if text := err.Error(); wrapping.MatchString(text) {
		return fmt.Errorf("%s is refused: %s%s", nameOf(object), plainRefusal(wrapping.ReplaceAllString(text, "")), flagHint(text))
	}
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot create resource ") {
		return fmt.Errorf("your role does not allow %s in namespace %q: %w; `sluice whoami` shows your projects", object.GetKind(), object.GetNamespace(), err)
	}
	return fmt.Errorf("create %s: %w", nameOf(object), err)
}

// flagHints are the flags of submit for what refusals name as a field of the pod.
var flagHints = []struct{ field, flags string }{
	{"annotation " + v1alpha1.AnnotationNodePools, "--node-pools"},
	{"annotations[" + v1alpha1.AnnotationNodePools + "]", "--node-pools"},
	{"annotation " + v1alpha1.AnnotationGPU + " ", "--mig-profile or --gpu"},
	{"priorityClassName sluice-interactive-preemptible", "--preemptible"},
	{"a PersistentVolumeClaim for files", "--pvc or --new-pvc"},
}

// flagHint names the flag of submit that sets what a refusal says, or is empty.
func flagHint(refusal string) string {
	for _, hint := range flagHints {
		if strings.Contains(refusal, hint.field) {
			return "; sluice submit: " + hint.flags
		}
	}
	return ""
}

// nameOf returns the name of an object as kubectl writes it.
func nameOf(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + "/" + object.GetName()
}

// printSubmission prints what was created, and how to go on.
func printSubmission(output io.Writer, request *submission.Request, objects []*unstructured.Unstructured, dryRun string) {
	created := "created"
	if dryRun == dryRunServer {
		created = "would be created"
	}
	for _, object := range objects {
		fmt.Fprintf(output, "%s %s in namespace %s\n", printer.Sanitize(nameOf(object)), created, printer.Sanitize(object.GetNamespace()))
	}
	if dryRun == dryRunServer {
		return
	}
	where := ""
	if request.Namespace != "" {
		where = " -n " + request.Namespace
	}
	fmt.Fprintf(output, "\nTo see whether it runs: sluice list%s\nTo read its output:     sluice logs %s%s\n", where, request.Name, where)
	if len(request.Ports) > 0 {
		fmt.Fprintf(output, "To reach it:            sluice port-forward %s%s\n", request.Name, where)
	}
}
