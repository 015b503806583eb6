"""Answers who may do what: tokens with the rules of RBAC roles, and SelfSubjectAccessReviews.

source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/, and
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from kubernetes.apiserver.answers import Failure


class Rights:
    """`denied`: (verb, plural) that nobody but the administrator may do. A request without a token is the administrator's."""

    def __init__(self):
        self.denied = set()

    def authenticate(self, authorization):
        """The user of a token. raises: Failure 401"""
        if authorization == "Bearer unknown":
            raise Failure(401, "Unauthorized")
        return "test" if authorization else "admin"

    def check(self, authorization, verb, route, plural):
        if authorization and not self.may(verb, plural):
            where = f" in the namespace {route.namespace!r}" if route.namespace else " at the cluster scope"
            raise Failure(403, f'{plural} is forbidden: User "test" cannot {verb} resource "{plural}"{where}')

    def may(self, verb, plural):
        return not {(verb, plural), ("*", plural), (verb, "*"), ("*", "*")} & self.denied

    def review(self, body):
        asked = body["spec"]["resourceAttributes"]
        plural = asked["resource"] + (f"/{asked['subresource']}" if asked.get("subresource") else "")
        allowed = self.may(asked["verb"], plural)
        return {**body, "status": {"allowed": allowed, "reason": "" if allowed else "no rule allows it"}}

    def who(self, body, user):
        """source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#self-subject-review"""
        return {**body, "status": {"userInfo": {"username": user, "groups": ["system:authenticated"]}}}

    def rules(self, body, kinds):
        """Of a SelfSubjectRulesReview: a rule for each kind and what may be done with it.

        source: https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/self-subject-rules-review-v1/
        """
        verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
        found = [
            {
                "apiGroups": [kind.group],
                "resources": [kind.plural],
                "verbs": [verb for verb in verbs if self.may(verb, kind.plural)],
            }
            for kind in kinds
        ]
        rules = [rule for rule in found if rule["verbs"]]
        return {**body, "status": {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}}
