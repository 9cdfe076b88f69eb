// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
)

// ConnectionValidator refuses exec, attach and port-forward to pods that another user created. The API server calls it
// only for users with the virtual verb own-only, and without others, on connections of sluice.dev.
type ConnectionValidator struct {
	// Creators resolves the creator of the pod.
	Creators *CreatorResolver
}

var _ admission.Handler = (*ConnectionValidator)(nil)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// Handle implements admission.Handler. A request names the pod, but not its UID, so it reads the pod again after its
// owners: no other pod has got the name in between.
func (v *ConnectionValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Connect {
		return admission.Allowed("")
	}
	pod, err := v.Creators.get(ctx, podKind, req.Namespace, req.Name)
	if err != nil {
		return undecided(fmt.Errorf("get pod %s: %w", req.Name, err))
	}
	user := req.UserInfo.Username
	creator, err := v.Creators.Of(ctx, pod)
	switch {
	case errors.Is(err, errUnknownCreator):
		return deniedConnection(req.Name, err.Error())
	case err != nil:
		return undecided(fmt.Errorf("find the creator of pod %s: %w", req.Name, err))
	case creator != user:
		return deniedConnection(req.Name, "it was created by "+creator)
	}
	// A workload of the user may have adopted a pod that another user's workload released. The label stays.
	if label, labeled := pod.Labels[v1alpha1.LabelCreator]; labeled && label != v1alpha1.CreatorLabel(user) {
		return deniedConnection(req.Name, "it was created for the workload of another user")
	}
	present, err := v.Creators.get(ctx, podKind, req.Namespace, req.Name)
	if err != nil {
		return undecided(fmt.Errorf("get pod %s: %w", req.Name, err))
	}
	if present.UID != pod.UID {
		return deniedConnection(req.Name, "another pod has got the name meanwhile; try again")
	}
	return admission.Allowed("")
}

// deniedConnection returns the answer to a connection to a pod of another user.
func deniedConnection(pod, reason string) admission.Response {
	return admission.Denied(fmt.Sprintf("you cannot connect to pod %s: %s. Your role lets you use exec, attach and port-forward only with "+
		"pods of your own workloads; ask the creator of the pod, or an L1 researcher or editor of the project", pod, reason))
}

// undecided returns the answer to a request that cannot be decided: that of the API server if it has one, such as that
// there is no such pod.
func undecided(err error) admission.Response {
	var status apierrors.APIStatus
	response := evaluation.ErrorResponse(err)
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		result := status.Status()
		response.Result = &result
	}
	return response
}
