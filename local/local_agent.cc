#include "local/local_agent.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "rollout/environment/http/http_agent_client.h"
#include "rollout/openai/tool_format.h"
#include "rollout/worker/rollout_setup.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<LocalAgent>> LocalAgent::Start(const JobSetup& setup,
                                                              NativeEngine& engine,
                                                              const Clock& clock) {
  const ModelConfig& config = setup.model.config;
  const Tokenizer& tokenizer = *setup.model.tokenizer;
  std::unique_ptr<LocalAgent> agent(new LocalAgent());
  FRESHET_ASSIGN_OR_RETURN(agent->client_,
                           HttpAgentClient::Open(setup.spec.environment().address()));
  FRESHET_ASSIGN_OR_RETURN(agent->port_, openai::EndpointPort::Start({}));
  const openai::ToolCallChoice tools = openai::ToolFormatOf(tokenizer);
  openai::RolloutEndpointOptions options;
  options.api = agent->port_->api();
  options.api.model_name = setup.spec.name();
  options.api.model = openai::MakeServedModel(config, engine.stats());
  options.api.tool_format = tools.format;
  options.api.defaults = openai::SamplingDefaults(config.generation_text);
  options.queue.request_timeout = absl::Milliseconds(setup.spec.environment().timeout_ms());
  agent->endpoint_ =
      std::make_unique<openai::RolloutEndpoint>(engine, tokenizer, clock, std::move(options));
  agent->port_->Attach(*agent->endpoint_);
  FRESHET_ASSIGN_OR_RETURN(const std::string base_url,
                           agent->port_->BaseUrlFor(setup.spec.environment().address()));
  FRESHET_LOG(Info) << "event=endpoint url=" << base_url
                    << " tool_calls=" << LogQuoted(tools.reason);
  agent->runner_ =
      std::make_unique<AgentRunner>(agent->endpoint_->queue(), agent->endpoint_->sessions(),
                                    *agent->client_, clock, MakeAgentOptions(setup.spec, base_url));
  return agent;
}

}  // namespace freshet
