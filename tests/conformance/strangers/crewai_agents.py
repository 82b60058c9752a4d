# mypy: ignore-errors

"""Agents, crews and flows of CrewAI as people write them."""

from crewai import LLM, Agent, Crew, Process, Task
from crewai.flow.flow import Flow, start
from crewai.project import CrewBase, after_kickoff, agent, before_kickoff, crew, task

model = LLM("openai/gpt-4o", max_retries=0)

clerk = Agent(role="clerk", goal="Answer.", backstory="Be brief.", llm=model)
plain_crew = Crew(
    agents=[clerk], tasks=[Task(description="Answer {question}", expected_output="An answer.", agent=clerk)]
)


@CrewBase
class Helpers:
    agents_config = "agents.yaml"
    tasks_config = "tasks.yaml"

    @before_kickoff
    def prepare(self, inputs):
        return {**inputs, "topic": inputs["topic"].upper()}

    @after_kickoff
    def finish(self, output):
        return output

    @agent
    def writer(self) -> Agent:
        return Agent(config=self.agents_config["writer"], llm=model)

    @task
    def write(self) -> Task:
        return Task(config=self.tasks_config["write"])

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)


helpers = Helpers()


class Echo(Flow):
    @start()
    def answer(self):
        return f"{self.state['message']}!"
