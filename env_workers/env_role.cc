#include "env_workers/env_role.h"

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

absl::Status EnvRole::Start(const runtime::RoleContext& context) {
  context_ = context;
  if (!agent_options_.has_value()) return absl::OkStatus();
  context_.readiness->Set("controller", false, "not registered yet");
  runtime::WorkerAgentOptions agent = *agent_options_;
  agent.identity.set_address(context.grpc_address);
  agent.identity.set_http_address(context.http_address);
  FRESHET_ASSIGN_OR_RETURN(agent_, runtime::WorkerAgent::Create(agent, *this, *this, log_));
  agent_->Begin();
  return absl::OkStatus();
}

absl::Status EnvRole::Drain(absl::Time deadline) {
  {
    MutexLock lock(mu_);
    draining_ = true;
  }
  service_.StopAdmitting();
  // Makes the controller route rollouts elsewhere.
  if (agent_ != nullptr) agent_->SendStatusNow();
  if (!service_.AwaitNoEpisodes(deadline)) {
    FRESHET_LOG(Warning) << "event=episodes_cut count=" << service_.open_episodes();
  }
  if (agent_ == nullptr) return absl::OkStatus();
  const absl::Status left = agent_->Deregister("drained");
  if (!left.ok()) {
    FRESHET_LOG(Warning) << "event=deregister_failed error=" << LogQuoted(Message(left));
  }
  return absl::OkStatus();
}

void EnvRole::Stop() {
  if (agent_ != nullptr) agent_->Stop();
}

void EnvRole::FillStatus(cluster::v1::WorkerStatus& status) {
  status.set_open_episodes(service_.open_episodes());
  MutexLock lock(mu_);
  status.set_draining(draining_);
}

void EnvRole::OnEpoch(const std::string&) { context_.readiness->Set("controller", true); }

void EnvRole::OnFenced(const std::string& reason) {
  // Episodes belong to their rollouts, not to an epoch, so they continue.
  context_.readiness->Set("controller", false, reason);
}

void EnvRole::OnDirective(const cluster::v1::Directive& directive) {
  if (directive.directive_case() == cluster::v1::Directive::kDrain) {
    FRESHET_LOG(Info) << "event=drain reason=" << LogQuoted(directive.drain().reason());
    context_.request_drain(absl::OkStatus());
  }
}

}  // namespace freshet
